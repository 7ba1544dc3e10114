"""File systems under test, for suites that run on

fake       everything in memory
namespace  the real namespace operations, chunks in memory
native     the real namespace operations, real storage servers in this process
cluster    real processes
"""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from deploy.local import LocalCluster
from fs3._native import IoClient, StorageServer
from fs3.client.connect import connect
from fs3.client.fake import FakeCluster
from fs3.client.filesystem import FileSystem
from fs3.client.metadata import Identity
from fs3.config.metadata import JobsConfig
from fs3.ids import (
    ChainId,
    InodeId,
    NodeId,
    TargetId,
    new_cluster_id,
    new_incarnation,
    node_of,
    target_id,
)
from fs3.model.routing import TargetState
from fs3.wire import keys
from fs3.wire import metadata as wire
from meta_service.jobs.chunks import Chunks
from meta_service.jobs.cuts import Cuts
from meta_service.jobs.native_chunks import NativeChunks
from meta_service.namespace.batch import Call
from tests.meta_world import ROUTING, TABLE, World

ChainMember = tuple[int, int, int, str, int]


class NamespaceServer:
    """The namespace operations of the metadata service on the memory engine, without a process."""

    def __init__(self, chunks: Chunks | None = None) -> None:
        self._world = World()
        self._lock = threading.Lock()
        inputs, config = self._world.inputs, JobsConfig()
        self._cuts = chunks and Cuts(self._world.engine, chunks, inputs, config)

    def answer(self, method: int, body: bytes) -> tuple[int, bytes]:
        caller, raw = msgspec.msgpack.decode(body, type=tuple[wire.Caller, msgspec.Raw])
        request = msgspec.msgpack.decode(raw, type=wire.METHODS[method][0])
        with self._lock:
            self._world.now_ns = time.time_ns()
            if self._cuts is not None:
                self._cuts.step()
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


class NativeStorage:
    """Two storage servers in this process; every chain has a replica on each."""

    def __init__(self, directory: Path) -> None:
        self._id = new_cluster_id()
        self.servers = [
            StorageServer(cluster_id=self._id, node_id=node, incarnation=new_incarnation())
            for node in (1, 2)
        ]
        self._chains = [self._chain(chain, directory) for chain in TABLE.chains]
        # One namespace for all: inode numbers, which name chunks, must not start anew.
        jobs = NativeChunks(self.client(), lambda: ROUTING, timeout_s=5.0)
        self.cluster = FakeCluster(metadata=NamespaceServer(jobs), table=TABLE, data=self.client)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def client(self) -> IoClient:
        client = IoClient(cluster_id=self._id, incarnation=new_incarnation())
        client.set_routing(self._chains)
        return client

    def _chain(self, chain: ChainId, directory: Path) -> tuple[int, int, list[ChainMember]]:
        members: list[ChainMember] = []
        for node, server in enumerate(self.servers, 1):
            target = target_id(NodeId(node), 0, chain)
            path = directory / f"{node}-{chain}"
            path.mkdir()
            server.add_target(target, chain, str(path), create=True)
            members.append((target, chain, TargetState.SERVING, *server.target_endpoint(target)))
        if chain % 2:
            members.reverse()
        for member in members:
            self.servers[node_of(TargetId(member[0])) - 1].set_chain(member[0], chain, 1, members)
        return chain, 1, members


@pytest.fixture(scope="session")
def native_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeStorage]:
    storage = NativeStorage(tmp_path_factory.mktemp("storage"))
    yield storage
    storage.stop()


@pytest.fixture
def native_fs(native_storage: NativeStorage) -> Iterator[FileSystem]:
    """The real namespace operations and real storage, in this process."""
    yield from _in_memory(native_storage.cluster)


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
