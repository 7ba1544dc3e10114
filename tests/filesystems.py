"""File systems under test, for suites that run on the fake, on the real namespace in memory, and on
a real cluster."""

import os
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from deploy.local import LocalCluster
from fs3.client.connect import connect
from fs3.client.fake import FakeCluster
from fs3.client.filesystem import FileSystem
from fs3.client.metadata import Identity
from fs3.ids import InodeId
from fs3.wire import keys
from fs3.wire import metadata as wire
from meta_service.namespace.batch import Call
from tests.meta_world import TABLE, World


class NamespaceServer:
    """The namespace operations of the metadata service on the memory engine, without a process."""

    def __init__(self) -> None:
        self._world = World()
        self._lock = threading.Lock()

    def answer(self, method: int, body: bytes) -> tuple[int, bytes]:
        caller, raw = msgspec.msgpack.decode(body, type=tuple[wire.Caller, msgspec.Raw])
        request = msgspec.msgpack.decode(raw, type=wire.METHODS[method][0])
        with self._lock:
            self._world.now_ns = time.time_ns()
            status, reply = self._world.batch([Call(caller, request)])[0]
        return status, reply

    def open_sessions(self) -> int:
        begin, end = keys.session(InodeId(0), 0), keys.session(InodeId(2**64 - 1), 0)
        return len(self._world.engine.transact(lambda t: t.scan(begin, end, limit=100)))


@pytest.fixture
def fake_fs() -> Iterator[FileSystem]:
    """An in-memory cluster of this test."""
    yield from _in_memory(FakeCluster())


@pytest.fixture
def namespace_fs() -> Iterator[FileSystem]:
    """The real namespace operations, with chunks in memory."""
    yield from _in_memory(FakeCluster(metadata=NamespaceServer(), table=TABLE))


@pytest.fixture(scope="session")
def local_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A real cluster of three nodes and two replicas that ends with the tests."""
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), owner=os.getpid())
    cluster.up(nodes=3, replicas=2)
    yield cluster
    cluster.down()


@pytest.fixture
def cluster_fs(local_cluster: LocalCluster) -> Iterator[FileSystem]:
    """A client of the real cluster."""
    with connect(local_cluster.url) as fs:
        yield fs


def _in_memory(cluster: FakeCluster) -> Iterator[FileSystem]:
    with cluster.connect(Identity(0, 0, ())) as fs:
        yield fs
    assert cluster.metadata.open_sessions() == 0, "a test left a file open for writing"
