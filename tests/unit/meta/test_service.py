"""The service over its real transport: batches, refusals, what survives a defect."""

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fs3._native import RpcChannel
from fs3.config.metadata import JobsConfig, MetadataConfig
from fs3.errors import (
    AlreadyExists,
    Internal,
    InvalidArgument,
    NoSpace,
    Unavailable,
    VersionMismatch,
)
from fs3.ids import ROOT_INODE, Incarnation, NodeId, RequestId, new_cluster_id
from fs3.wire import metadata as wire
from fs3.wire.follow import Followed
from fs3.wire.metadata import Caller, Mkdir, Open, Stat, Sync
from meta_service.kv.rocksdb import RocksDbEngine
from meta_service.media import MediaReplies
from meta_service.namespace.inputs import Space
from meta_service.namespace.replay import Reply
from meta_service.service import MetadataService
from tests.meta_world import ROUTING, decoded

CLUSTER = new_cluster_id()
CLIENT = Incarnation(77)


class Client:
    def __init__(self, port: int) -> None:
        self.channel = RpcChannel(
            "127.0.0.1", port, cluster_id=CLUSTER, incarnation=CLIENT, connect_timeout_s=2.0
        )
        self._number = 0

    def call(self, *requests: wire.Request) -> list[Any]:
        """Sent together; replies decoded, errors as objects."""
        answers = self.channel.call_many([self.encoded(r) for r in requests], 10.0)
        return [
            _outcome(request, status, body)
            for request, (status, body) in zip(requests, answers, strict=True)
        ]

    def encoded(self, request: wire.Request) -> tuple[int, bytes]:
        self._number += 1
        caller = Caller(0, 0, (), CLIENT, RequestId(self._number), RequestId(0))
        return wire.METHOD_OF[type(request)], msgspec.msgpack.encode((caller, request))


def _bytes(body: bytes | str) -> bytes:
    assert isinstance(body, bytes), f"not from the service: {body}"
    return body


def _outcome(request: wire.Request, status: int, body: bytes | str) -> Any:
    try:
        return decoded(request, Reply(status, _bytes(body)))
    except OSError as error:
        return error


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RocksDbEngine]:
    engine = RocksDbEngine(str(tmp_path / "kv"))
    yield engine
    engine.close()


@pytest.fixture
def service(engine: RocksDbEngine) -> Iterator[MetadataService]:
    service = MetadataService(
        engine,
        lambda: ROUTING,
        MetadataConfig(jobs=JobsConfig(poll_s=0.01, chunk_timeout_s=0.1)),
        cluster_id=CLUSTER,
        node=NodeId(1),
        incarnation=Incarnation(5),
        host="127.0.0.1",
        port=0,
        space=lambda: Space(1000, 600),
        is_client_dead=lambda _: False,
        follow=lambda _: Followed(None),
    )
    yield service
    service.stop()


@pytest.fixture
def client(service: MetadataService) -> Iterator[Client]:
    client = Client(service.start())
    yield client
    client.channel.close()


def test_requests_are_answered_in_batches(service: MetadataService, client: Client) -> None:
    made = client.call(*(Mkdir(ROOT_INODE, f"d{n}") for n in range(300)))
    assert len({inode.id for inode in made}) == 300
    [root] = client.call(Stat(ROOT_INODE, ""))
    assert (root.nlink, root.mode) == (302, 0o1777)
    counted = service.statistics.snapshot()
    assert counted["Mkdir"]["requests"] == 300
    assert counted["batches"]["count"] < 100
    assert 0 < counted["Mkdir"]["seconds_max"] <= counted["Mkdir"]["seconds"]


def test_errors_are_typed_and_counted(service: MetadataService, client: Client) -> None:
    made, refused = client.call(Mkdir(ROOT_INODE, "d"), Mkdir(ROOT_INODE, "d"))
    assert made.nlink == 2
    assert isinstance(refused, AlreadyExists)
    assert service.statistics.snapshot()["Mkdir"]["errors"] == 1


def test_sync_is_answered_once_it_is_on_media(client: Client) -> None:
    [opened] = client.call(Open(ROOT_INODE, "f", os.O_CREAT | os.O_WRONLY))
    request = Sync(opened.inode.id, opened.session, 5, 0)
    synced, looked = client.call(request, Stat(ROOT_INODE, "f"))
    assert synced.length == looked.length == 5


def test_media_replies_wait_for_a_sync_that_began_after_them() -> None:
    syncing, may_end = threading.Event(), threading.Event()
    sent: list[int] = []

    def sync() -> None:
        syncing.set()
        assert may_end.wait(5)
        may_end.clear()

    media = MediaReplies(sync, lambda replies: sent.extend(n for _, n, _ in replies))
    media.start()
    media.add([(1, 1, Reply(0, b""))])
    assert syncing.wait(5)
    syncing.clear()
    media.add([(1, 2, Reply(0, b"")), (1, 3, Reply(0, b""))])
    may_end.set()
    assert syncing.wait(5), "those that came during the first sync need another one"
    assert sent == [1]
    may_end.set()
    media.stop()
    assert sent == [1, 2, 3]


def test_media_replies_become_errors_when_the_sync_fails() -> None:
    sent: list[int] = []

    def sync() -> None:
        raise NoSpace("disk full")

    media = MediaReplies(sync, lambda replies: sent.extend(r.status for _, _, r in replies))
    media.start()
    media.add([(1, 1, Reply(0, b""))])
    media.stop()
    assert sent == [NoSpace.number]


def test_malformed_and_unknown_requests_are_refused_by_name(client: Client) -> None:
    stat = wire.METHOD_OF[Stat]
    answers = client.channel.call_many(
        [
            (stat, b"\xc1"),
            (stat, b"\x92\x01\x02"),
            (0x04FF, b"\x90"),
            client.encoded(Stat(ROOT_INODE, "")),
        ],
        10.0,
    )
    malformed, wrong, unknown, good = (_bytes(body) for _, body in answers)
    assert [status for status, _ in answers] == [
        InvalidArgument.number,
        InvalidArgument.number,
        VersionMismatch.number,
        0,
    ]
    assert b"malformed Stat request" in malformed
    assert b"malformed Stat request" in wrong
    assert b"0x04ff" in unknown
    assert good


def test_a_defect_does_not_end_the_service(
    engine: RocksDbEngine,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(engine, "transact", broken)
        [failed] = client.call(Stat(ROOT_INODE, ""))
    assert isinstance(failed, Internal)
    assert "defect in a batch of 1 requests" in caplog.text
    assert client.call(Stat(ROOT_INODE, ""))[0].id == ROOT_INODE


def test_an_unreachable_store_fails_the_batch_and_not_the_service(
    engine: RocksDbEngine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise Unavailable("no store")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "transact", broken)
        failed = client.call(Stat(ROOT_INODE, ""), Mkdir(ROOT_INODE, "d"))
    assert [type(error) for error in failed] == [Unavailable, Unavailable]
    assert client.call(Mkdir(ROOT_INODE, "d"))[0].nlink == 2


def test_stop_without_start(service: MetadataService) -> None:
    service.stop()


def test_a_port_in_use(service: MetadataService, engine: RocksDbEngine) -> None:
    port = service.start()
    with pytest.raises(Unavailable, match=str(port)):
        MetadataService(
            engine,
            lambda: ROUTING,
            MetadataConfig(),
            cluster_id=CLUSTER,
            node=NodeId(1),
            incarnation=Incarnation(6),
            host="127.0.0.1",
            port=port,
            space=lambda: Space(0, 0),
            is_client_dead=lambda _: False,
            follow=lambda _: Followed(None),
        )


def test_the_namespace_is_there_after_a_restart(tmp_path: Path) -> None:
    for round_ in range(2):
        engine = RocksDbEngine(str(tmp_path / "kv"))
        service = MetadataService(
            engine,
            lambda: ROUTING,
            MetadataConfig(),
            cluster_id=CLUSTER,
            node=NodeId(1),
            incarnation=Incarnation(5 + round_),
            host="127.0.0.1",
            port=0,
            space=lambda: Space(0, 0),
            is_client_dead=lambda _: False,
            follow=lambda _: Followed(None),
        )
        client = Client(service.start())
        [answer] = client.call(Mkdir(ROOT_INODE, f"d{round_}"))
        [listing] = client.call(wire.List(ROOT_INODE, "/"))
        client.channel.close()
        service.stop()
        engine.close()
        if round_ == 0:
            assert answer.nlink == 2
    # The second client repeats the number of the first one's request, and gets its result.
    assert [entry.name for entry in listing.entries] == ["d0"]
    assert answer.nlink == 2
