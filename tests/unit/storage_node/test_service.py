"""The shell of a storage node against a real manager, with the fake server."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from deploy.local import free_port
from fs3.config.manager import FormationConfig, ManagerConfig
from fs3.config.storage import StorageConfig
from fs3.errors import Fs3Error, Unavailable, VersionMismatch
from fs3.ids import ChainId, NodeId, TargetId, new_incarnation
from fs3.model.routing import TargetState
from fs3.wire.liveness import Outcome
from fs3.wire.proto import storage_pb2, storage_pb2_grpc
from meta_service.core import health
from meta_service.kv.memory import MemoryEngine
from meta_service.manager import Manager
from storage_node import control
from storage_node.directory import NodeDirectory
from storage_node.engine.fake import FakeEvent, FakeServer
from storage_node.service import StorageNode

WAIT_S = 5.0


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


def make_manager(engine: MemoryEngine, port: int) -> Manager:
    config = ManagerConfig(
        directory="", port=port, formation=FormationConfig(nodes=1, replicas=1, chains=2)
    )
    return Manager(engine, config, new_incarnation(), on_failure=lambda _: None)


@pytest.fixture
def manager(engine: MemoryEngine) -> Iterator[Manager]:
    made = make_manager(engine, free_port())
    made.start(1)
    yield made
    made.stop()


class Running:
    """A started node and what it asked its process to do."""

    def __init__(self, config: StorageConfig) -> None:
        self.stopping = threading.Event()
        self.started_over = threading.Event()
        self.errors: list[Fs3Error] = []
        self.node = StorageNode(
            config,
            FakeServer,
            stopping=self.stopping,
            on_start_over=self.started_over.set,
            on_fatal=self.errors.append,
        )
        control_server, self.node.control_port = control.serve(self.node, "127.0.0.1", 0)
        self._control = control_server
        self.node.start()

    @property
    def server(self) -> FakeServer:
        assert isinstance(self.node.server, FakeServer)
        return self.node.server

    def stop(self) -> None:
        self.stopping.set()
        self._control.stop(None)
        self.node.stop()


@pytest.fixture
def start(manager: Manager, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def one(name: str = "node", **settings: object) -> Running:
        config = StorageConfig(
            manager=f"fs3://127.0.0.1:{manager.port}",
            directory=str(tmp_path / name),
            targets_per_disk=2,
            **settings,  # type: ignore[arg-type]
        )
        running.append(Running(config))
        return running[-1]

    yield one
    for each in running:
        each.stop()


def wait_until(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def is_writable(manager: Manager) -> bool:
    return health.is_writable(manager._loop.machine)


def test_a_node_joins_serves_and_says_so(manager: Manager, start: Callable[..., Running]) -> None:
    running = start()
    wait_until(lambda: is_writable(manager))
    assert {chain.version for chain in running.server.chains.values()} == {1}
    states = [m[2] for chain in running.server.chains.values() for m in chain.members]
    assert states == [TargetState.SERVING] * 2
    wait_until(lambda: len(manager.target_statuses()) == 2)
    assert all(status.free_bytes > 0 for status in manager.target_statuses())


def test_a_restarted_node_keeps_its_id_ports_and_targets(
    manager: Manager, start: Callable[..., Running]
) -> None:
    first = start()
    wait_until(lambda: is_writable(manager))
    before = (first.node.targets(), first.server.endpoints())
    first.stop()
    first.node._directory.close()
    second = start()
    assert (second.node.targets(), second.server.endpoints()) == before
    wait_until(lambda: all(c.version > 1 and c.serving for c in manager.routing().chains))


def test_a_role_of_an_earlier_incarnation_is_never_taken(
    engine: MemoryEngine, manager: Manager, start: Callable[..., Running]
) -> None:
    """A manager that restarted together with the node still shows the node as serving."""
    first = start()
    wait_until(lambda: is_writable(manager))
    assert first.server.adopted == [(1, 1), (2, 1)]
    first.stop()
    first.node._directory.close()
    manager.stop()
    second = start()  # connects as soon as there is a manager
    following = make_manager(engine, manager.port)
    following.start(1)
    try:
        wait_until(lambda: is_writable(following))
        assert second.server.adopted
        assert all(version > 1 for _, version in second.server.adopted)
    finally:
        following.stop()


def test_a_taken_port_is_replaced_by_another(
    manager: Manager, start: Callable[..., Running]
) -> None:
    first = start()
    wait_until(lambda: is_writable(manager))
    ((_, port),) = first.server.endpoints()
    first.node._directory.close()  # the first one goes on running, and keeps its port
    second = start()
    assert second.server.endpoints()[0][1] != port


def test_a_failed_target_is_reported(manager: Manager, start: Callable[..., Running]) -> None:
    running = start()
    wait_until(lambda: is_writable(manager))
    target = next(iter(running.server.chains))
    running.server.say(FakeEvent("target_error", target_id=target, code=14, message="bad sector"))
    wait_until(lambda: any(s.failed for s in manager.target_statuses()))
    (failed,) = [s for s in manager.target_statuses() if s.failed]
    assert (failed.id, failed.cause) == (target, "bad sector")
    wait_until(lambda: TargetState.LAST in _states(manager))


def test_a_target_that_lost_its_files_is_reported_not_remade(
    manager: Manager, start: Callable[..., Running], tmp_path: Path
) -> None:
    first = start()
    wait_until(lambda: is_writable(manager))
    first.stop()
    first.node._directory.close()
    (tmp_path / "node" / "disk-0" / "target-1" / "fake-target").unlink()
    second = start()
    assert len(second.node.targets()) == 1
    wait_until(lambda: any(s.failed for s in manager.target_statuses()))
    wait_until(lambda: sorted(_states(manager)) == [TargetState.SERVING, TargetState.LAST])


def test_sync_progress_reaches_the_manager(manager: Manager, start: Callable[..., Running]) -> None:
    running = start()
    wait_until(lambda: is_writable(manager))
    running.server.say(FakeEvent("sync_progress", target_id=5, chain_id=1, done=3, total=10))
    wait_until(lambda: ChainId(1) in manager._loop.machine.progress)
    assert manager._loop.machine.progress[ChainId(1)].done_chunks == 3


def test_an_excluded_incarnation_starts_over(
    manager: Manager, start: Callable[..., Running]
) -> None:
    running = start()
    wait_until(lambda: is_writable(manager))
    node = NodeId(1)
    membership = manager._loop.machine.membership
    membership.probed(
        node, manager.routing().nodes[0].incarnation, Outcome.ANSWERED, answered=5, now=0.0
    )
    wait_until(running.started_over.is_set)


def test_a_node_of_another_cluster_ends_with_one_line(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    directory = NodeDirectory(tmp_path / "foreign")
    directory.node.node_id, directory.node.cluster_id = 4, b"x" * 16
    directory.save()
    directory.close()
    running = start("foreign")
    wait_until(lambda: running.errors)
    assert isinstance(running.errors[0], VersionMismatch)
    assert "another cluster" in str(running.errors[0])


def test_a_node_that_waits_for_a_manager_can_be_stopped(tmp_path: Path) -> None:
    config = StorageConfig(
        manager=f"fs3://127.0.0.1:{free_port()}", directory=str(tmp_path / "node")
    )
    stopping = threading.Event()
    node = StorageNode(config, FakeServer, stopping=stopping, on_start_over=print, on_fatal=print)
    threading.Timer(0.3, stopping.set).start()
    with pytest.raises(Unavailable, match="stopped before"):
        node.start()


def test_an_operator_asks_a_node_directly(manager: Manager, start: Callable[..., Running]) -> None:
    running = start()
    wait_until(lambda: is_writable(manager))
    with grpc.insecure_channel(f"127.0.0.1:{running.node.control_port}") as channel:
        stub = storage_pb2_grpc.StorageControlStub(channel)
        targets = stub.ListTargets(storage_pb2.ListTargetsRequest())
        assert [TargetId(t.id) for t in targets.targets] == list(running.server.chains)
        assert stub.GetCounters(storage_pb2.GetCountersRequest()).values == {"targets": 2}


def _states(manager: Manager) -> list[TargetState]:
    return [m.state for chain in manager.routing().chains for m in chain.members]
