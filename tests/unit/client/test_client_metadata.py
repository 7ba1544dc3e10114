"""Retries, the deadline, and exactly-once of the metadata client."""

import threading
from collections.abc import Sequence

import msgspec
import pytest

from fs3._native import NativeError
from fs3.client.fake import FakeChannel, FakeCluster, FakeMetadata
from fs3.client.metadata import Identity, MetadataClient, RequestLedger
from fs3.client.ports import Channel
from fs3.config.client import ClientConfig
from fs3.config.cluster import Endpoint
from fs3.errors import Busy, Fs3Error, TimedOut, Unavailable, VersionMismatch
from fs3.ids import ROOT_INODE, Incarnation
from fs3.model.inode import Inode
from fs3.wire import metadata as wire

CONFIG = ClientConfig(metadata_deadline_s=0.3, retry_pause_min_s=0.001, retry_pause_max_s=0.01)
SERVERS = [Endpoint("one", 1), Endpoint("two", 2)]


class Script:
    """A channel that plays answers: a (status, reply) or (status, sentence) for each request."""

    def __init__(self, *answers: tuple[int, msgspec.Struct | str]) -> None:
        self.answers = list(answers)
        self.sent: list[wire.Caller] = []
        self.closed = 0

    def call_many(
        self, requests: Sequence[tuple[int, bytes]], timeout_s: float
    ) -> list[tuple[int, bytes | str]]:
        assert 0 < timeout_s <= CONFIG.metadata_attempt_s
        for _, body in requests:
            caller, _ = msgspec.msgpack.decode(body, type=tuple[wire.Caller, msgspec.Raw])
            self.sent.append(caller)
        status, reply = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        body = reply if isinstance(reply, str) else msgspec.msgpack.encode(reply)
        return [(status, body)] * len(requests)

    def close(self) -> None:
        self.closed += 1


def client(
    channels: dict[Endpoint, Channel], servers: Sequence[Endpoint] = SERVERS
) -> tuple[MetadataClient, list[Endpoint]]:
    dialled: list[Endpoint] = []

    def dial(endpoint: Endpoint) -> Channel:
        dialled.append(endpoint)
        return channels[endpoint]

    made = MetadataClient(lambda: servers, dial, Identity(7, 8, (8, 9)), Incarnation(5), CONFIG)
    return made, dialled


def refused() -> tuple[int, str]:
    return Unavailable.number, "connection refused"


def space() -> tuple[int, wire.FsStatistics]:
    return 0, wire.FsStatistics(4, 1, 3, 2)


def ask(metadata: MetadataClient) -> wire.FsStatistics:
    return metadata.call(wire.StatFs(), wire.FsStatistics, "/x")


def test_the_caller_names_identity_and_request() -> None:
    channel = Script(space())
    metadata, _ = client({SERVERS[0]: channel})
    ask(metadata)
    ask(metadata)
    assert [(c.uid, c.gid, c.groups, c.client) for c in channel.sent] == [(7, 8, (8, 9), 5)] * 2
    assert [(c.request, c.acknowledged) for c in channel.sent] == [(1, 0), (2, 1)]


def test_a_server_that_refuses_is_left_for_the_next_one_with_the_same_request() -> None:
    first, second = Script(refused()), Script(space())
    metadata, dialled = client({SERVERS[0]: first, SERVERS[1]: second})
    assert ask(metadata).free_bytes == 3
    assert dialled == SERVERS
    assert first.closed == 1
    assert first.sent[0].request == second.sent[0].request
    assert metadata.counters() == {"metadata_retries": 1}
    ask(metadata)
    assert dialled == SERVERS, "it stays with the server that answers"


@pytest.mark.parametrize("number", [Busy.number, Unavailable.number, TimedOut.number, 16])
def test_refusals_that_pass_are_retried(number: int) -> None:
    channel = Script((number, wire.ErrorBody(0, "wait")), space())
    metadata, _ = client({SERVERS[0]: channel})
    assert ask(metadata).inodes == 2
    assert [c.request for c in channel.sent] == [1, 1]


def test_refusals_that_stay_are_raised_at_once_with_path_and_errno() -> None:
    channel = Script((2, wire.ErrorBody(2, "x: No such file or directory")))
    metadata, _ = client({SERVERS[0]: channel})
    with pytest.raises(FileNotFoundError) as caught:
        ask(metadata)
    assert str(caught.value) == "/x: No such file or directory"
    assert (caught.value.filename, caught.value.errno) == ("/x", 2)
    assert len(channel.sent) == 1


def test_the_deadline_ends_it_with_the_last_reason() -> None:
    metadata, _ = client({s: Script(refused()) for s in SERVERS})
    with pytest.raises(TimedOut, match=r"/x: .*0.3 s.* unknown.*connection refused.*fs3 health"):
        ask(metadata)


def test_a_version_mismatch_is_not_retried() -> None:
    def dial(_: Endpoint) -> Channel:
        raise NativeError(VersionMismatch.number, "the server speaks protocol 9, not 1")

    metadata = MetadataClient(lambda: SERVERS, dial, Identity(0, 0, ()), Incarnation(1), CONFIG)
    with pytest.raises(VersionMismatch, match="protocol 9"):
        ask(metadata)
    assert metadata.counters() == {"metadata_retries": 0}


def test_a_server_with_a_full_queue_is_kept() -> None:
    channel = Script((Busy.number, "the queue is full"), space())
    metadata, dialled = client({SERVERS[0]: channel})
    assert ask(metadata).inodes == 2
    assert (dialled, channel.closed) == ([SERVERS[0]], 0)


def test_no_server_at_all() -> None:
    metadata, _ = client({}, servers=[])
    with pytest.raises(TimedOut, match="names no metadata server"):
        ask(metadata)


def test_a_batch_fails_one_by_one_and_retries_only_what_must() -> None:
    cluster = FakeCluster()
    with cluster.connect() as fs:
        fs.write_bytes("/a", b"1")
        cluster.channel.lose_requests = 1
        good, bad = fs.stat_many(["/a", "/none"])
        assert not isinstance(good, Fs3Error)
        assert isinstance(bad, FileNotFoundError)
        assert fs.stat_many([]) == []


def test_a_lost_reply_is_applied_once() -> None:
    cluster = FakeCluster()
    with cluster.connect() as fs:
        for operation in (
            lambda: fs.mkdir("/d"),
            lambda: fs.symlink("x", "/d/s"),
            lambda: fs.rename("/d/s", "/d/t"),
            lambda: fs.remove("/d/t"),
            lambda: fs.write_bytes("/d/f", b"x"),
            lambda: fs.rmdir("/e") if fs.exists("/e") else fs.mkdir("/e"),
        ):
            cluster.channel.lose_replies = 1
            operation()
        assert fs.listdir("/") == ["d", "e"]
        assert fs.counters()["metadata_retries"] == 6
        assert cluster.metadata.open_sessions() == 0


def test_replay_records_are_dropped_once_acknowledged() -> None:
    metadata = FakeMetadata(65_536)
    made, _ = client({SERVERS[0]: FakeChannel(metadata)})
    for _ in range(10):
        made.call(wire.Stat(ROOT_INODE, ""), Inode, "/")
    assert len(metadata._replies) <= 2


def test_the_ledger_waits_for_the_oldest_request() -> None:
    ledger = RequestLedger()
    assert ledger.begin() == (1, 0)
    assert ledger.begin() == (2, 0)
    ledger.end(2)
    assert ledger.begin() == (3, 0)
    ledger.end(1)
    assert ledger.begin() == (4, 2)


def test_the_ledger_never_acknowledges_too_much_under_threads() -> None:
    ledger = RequestLedger()
    running: set[int] = set()
    wrong: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        for _ in range(500):
            with lock:
                number, acknowledged = ledger.begin()
                running.add(number)
                if any(other <= acknowledged for other in running):
                    wrong.append(acknowledged)
            with lock:
                running.discard(number)
            ledger.end(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
