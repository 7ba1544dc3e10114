"""fs3rpc as Python meets it: RpcServer and RpcChannel."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fs3 import _native, errors
from fs3.ids import UNKNOWN_CLUSTER, ClusterId
from fs3.wire.frame import PeerKind

CLUSTER = ClusterId(b"0123456789abcdef")
METHOD = 0x0401

Answer = Callable[[int, bytes], tuple[int, bytes]]


def echo(method: int, body: bytes) -> tuple[int, bytes]:
    assert method == METHOD
    return 0, body


@contextmanager
def serving(answer: Answer = echo, queue_length_max: int = 8192) -> Iterator[_native.RpcServer]:
    server = _native.RpcServer(
        "127.0.0.1",
        0,
        cluster_id=CLUSTER,
        node_id=3,
        incarnation=30,
        kind=PeerKind.META,
        queue_length_max=queue_length_max,
    )
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            requests = server.poll(256, 0.05)
            server.reply(
                [
                    (connection, request, *answer(method, body))
                    for connection, request, method, body, _, _ in requests
                ]
            )

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        server.close()
        thread.join()


@contextmanager
def connected(
    server: _native.RpcServer, cluster_id: bytes = CLUSTER
) -> Iterator[_native.RpcChannel]:
    channel = _native.RpcChannel(
        "localhost", server.port, cluster_id=cluster_id, incarnation=7, connect_timeout_s=2
    )
    try:
        yield channel
    finally:
        channel.close()


def test_call_and_call_many() -> None:
    with serving() as server, connected(server) as channel:
        assert channel.call(METHOD, b"one", 5.0) == (0, b"one")
        bodies = [b"%d" % i for i in range(300)]
        outcomes = channel.call_many([(METHOD, body) for body in bodies], 5.0)
        assert outcomes == [(0, body) for body in bodies]
        assert channel.call_many([], 5.0) == []


def test_server_sees_who_asks() -> None:
    server = _native.RpcServer(
        "127.0.0.1", 0, cluster_id=CLUSTER, node_id=1, incarnation=1, kind=PeerKind.META
    )
    with connected(server) as channel:
        channel.submit(METHOD, b"x", 5.0)
        [(connection, request, method, body, kind, incarnation)] = server.poll(10, 5.0)
        assert connection > 0
        assert request > 0
        assert (method, body, kind, incarnation) == (METHOD, b"x", PeerKind.CLIENT, 7)
    server.close()
    assert server.poll(10, 5.0) == []


def test_status_of_the_service_keeps_its_bytes() -> None:
    with serving(lambda _m, _b: (2, b"\x92\x02\xa0")) as server, connected(server) as channel:
        assert channel.call(METHOD, b"", 5.0) == (errors.NotFound.number, b"\x92\x02\xa0")


def test_discovery_and_another_cluster() -> None:
    with serving() as server:
        with connected(server, UNKNOWN_CLUSTER) as channel:
            assert channel.cluster_id == CLUSTER
            assert (channel.server_node_id, channel.server_incarnation) == (3, 30)
        with pytest.raises(_native.NativeError, match="belongs to cluster") as refused:
            connected(server, b"x" * 16).__enter__()
        assert refused.value.code == errors.VersionMismatch.number


def test_a_deadline_is_an_outcome() -> None:
    def slow(_method: int, body: bytes) -> tuple[int, bytes]:
        time.sleep(0.2)
        return 0, body

    with serving(slow) as server, connected(server) as channel:
        status, text = channel.call(METHOD, b"", 0.02)
        assert status == errors.TimedOut.number
        assert isinstance(text, str)
        assert "deadline" in text
        assert channel.call(METHOD, b"later", 5.0) == (0, b"later")


def test_a_server_that_dies_is_an_outcome_and_the_channel_reconnects() -> None:
    with serving() as server:
        port = server.port
        channel = _native.RpcChannel(
            "127.0.0.1", port, cluster_id=CLUSTER, incarnation=7, connect_timeout_s=2
        )
    status, text = channel.call(METHOD, b"", 5.0)
    assert status == errors.Unavailable.number
    assert isinstance(text, str)
    before = _native.counters()["reconnects"]
    replacement = _native.RpcServer(
        "127.0.0.1", port, cluster_id=CLUSTER, node_id=3, incarnation=31, kind=PeerKind.META
    )
    time.sleep(0.1)  # the back-off
    channel.submit(METHOD, b"", 5.0)
    assert len(replacement.poll(10, 5.0)) == 1
    assert channel.server_incarnation == 31
    assert _native.counters()["reconnects"] > before
    channel.close()
    replacement.close()


def test_full_queue_is_busy_with_a_sentence() -> None:
    server = _native.RpcServer(
        "127.0.0.1",
        0,
        cluster_id=CLUSTER,
        node_id=1,
        incarnation=1,
        kind=PeerKind.META,
        queue_length_max=2,
    )
    with connected(server) as channel:
        outcomes = channel.call_many([(METHOD, b"")] * 5, 0.2)
        statuses = sorted(status for status, _ in outcomes)
        assert statuses == [errors.Busy.number] * 3 + [errors.TimedOut.number] * 2
        assert all(isinstance(text, str) for _, text in outcomes)
    server.close()


def test_port_in_use_and_unknown_host() -> None:
    with serving() as server:
        with pytest.raises(_native.NativeError, match="in use") as taken:
            _native.RpcServer(
                "127.0.0.1",
                server.port,
                cluster_id=CLUSTER,
                node_id=1,
                incarnation=1,
                kind=PeerKind.META,
            )
        assert taken.value.code == errors.Unavailable.number
    with pytest.raises(_native.NativeError, match="cannot resolve") as unknown:
        _native.RpcChannel(
            "no-such-host.invalid", 1, cluster_id=CLUSTER, incarnation=1, connect_timeout_s=1
        )
    assert unknown.value.code == errors.NotFound.number


def test_wrong_arguments() -> None:
    with serving() as server, connected(server) as channel:
        with pytest.raises(ValueError, match="16 bytes"):
            connected(server, b"short").__enter__()
        with pytest.raises(ValueError, match="not a number"):
            channel.call(METHOD, b"", float("nan"))
        with pytest.raises(ValueError, match=r"\(connection, request, status, body\)"):
            server.reply([(1, 2, 3)])  # type: ignore[list-item]


async def test_submit_under_asyncio() -> None:
    with serving() as server, connected(server) as channel:
        waiting: dict[int, asyncio.Future[bytes | str]] = {}
        loop = asyncio.get_running_loop()

        def take() -> None:
            for number, status, body in channel.completed():
                assert status == 0
                waiting[number].set_result(body)

        loop.add_reader(channel.fileno(), take)
        bodies = [b"%d" % i for i in range(64)]
        for body in bodies:
            waiting[channel.submit(METHOD, body, 5.0)] = loop.create_future()
        assert await asyncio.gather(*waiting.values()) == bodies
        loop.remove_reader(channel.fileno())


def test_a_waiting_call_releases_the_interpreter() -> None:
    server = _native.RpcServer(
        "127.0.0.1", 0, cluster_id=CLUSTER, node_id=1, incarnation=1, kind=PeerKind.META
    )
    with connected(server) as channel:
        thread = threading.Thread(target=channel.call, args=(METHOD, b"", 5.0))
        thread.start()
        [(connection, request, *_)] = server.poll(1, 5.0)  # would never run otherwise
        server.reply([(connection, request, 0, b"")])
        thread.join(5.0)
        assert not thread.is_alive()
    server.close()


def test_ctrl_c_ends_a_waiting_call() -> None:
    server = _native.RpcServer(
        "127.0.0.1", 0, cluster_id=CLUSTER, node_id=1, incarnation=1, kind=PeerKind.META
    )
    with connected(server) as channel:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            channel.call(METHOD, b"", 30.0)
        assert time.monotonic() - started < 5
    server.close()


def test_ping_and_counters() -> None:
    with serving() as server, connected(server) as channel:
        before = _native.counters()
        assert channel.call(2, b"ping", 5.0) == (0, b"ping")
        after = _native.counters()
        assert after["frames_sent"] - before["frames_sent"] == 2
        assert after["frames_received"] - before["frames_received"] == 2
        assert "malformed_header_crc" in after
