"""The manager over gRPC: a node's whole conversation, watchers, clients, errors, the fence."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import grpc
import pytest

from deploy.local import free_port
from fs3.client.admin import AdminClient
from fs3.client.routing import ManagerLink
from fs3.config.cluster import Endpoint, parse_url
from fs3.config.manager import FormationConfig, ManagerConfig
from fs3.errors import Busy, Conflict, InvalidArgument, Unavailable, VersionMismatch
from fs3.ids import ClusterId, Incarnation, NodeId, new_incarnation, target_id
from fs3.model.routing import NodeKind, NodeState
from fs3.runtime import control
from fs3.runtime.liveness import LivenessPort
from fs3.runtime.routing import RoutingWatcher
from fs3.wire.proto import manager_pb2, manager_pb2_grpc
from meta_service.cluster_store import ClusterStore
from meta_service.kv.memory import MemoryEngine
from meta_service.manager import Manager

WAIT_S = 5.0
METADATA_PORT = 4711


def make_manager(engine: MemoryEngine, port: int) -> Manager:
    config = ManagerConfig(
        directory="",
        port=port,
        formation=FormationConfig(nodes=1, replicas=1, chains=2),
        client_expires_s=1.0,
    )
    return Manager(engine, config, new_incarnation(), on_failure=lambda _: None)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def manager(engine: MemoryEngine) -> Iterator[Manager]:
    made = make_manager(engine, free_port())
    made.start(METADATA_PORT)
    yield made
    made.stop()


@pytest.fixture
def url(manager: Manager) -> str:
    return f"fs3://127.0.0.1:{manager.port}"


@pytest.fixture
def stub(url: str) -> Iterator[manager_pb2_grpc.ClusterManagerStub]:
    with control.open_channel(parse_url(url)) as channel:
        yield manager_pb2_grpc.ClusterManagerStub(channel)


class Node:
    """A hand-driven node: registers, and keeps a heartbeat stream."""

    def __init__(self, stub: manager_pb2_grpc.ClusterManagerStub, number: int = 1) -> None:
        self.stub = stub
        self.identity = bytes([number]) * 16
        reply = stub.AllocateNode(manager_pb2.AllocateNodeRequest(identity=self.identity))
        self.id, self.cluster_id = NodeId(reply.node_id), reply.cluster_id
        self.incarnation = new_incarnation()
        self.liveness_port = LivenessPort("127.0.0.1", self.id, self.incarnation).port
        self.outbox: queue.Queue[manager_pb2.NodeHeartbeat | None] = queue.Queue()
        self.commands: queue.Queue[manager_pb2.NodeCommand] = queue.Queue()

    def register(self) -> manager_pb2.NodeRegistered:
        return self.stub.RegisterNode(self.registration())

    def registration(self) -> manager_pb2.NodeRegistration:
        return manager_pb2.NodeRegistration(
            cluster_id=self.cluster_id,
            node_id=self.id,
            kind=NodeKind.STORAGE,
            identity=self.identity,
            incarnation=self.incarnation,
            boot_id="boot",
            host="127.0.0.1",
            port=9,
            liveness_port=self.liveness_port,
            weight=1.0,
            targets=[
                manager_pb2.Target(id=target_id(self.id, 0, i), generation=7, port=9)
                for i in range(2)
            ],
        )

    def connect(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def beat(self, **fields: object) -> None:
        self.outbox.put(
            manager_pb2.NodeHeartbeat(node_id=self.id, incarnation=self.incarnation, **fields)
        )

    def _read(self) -> None:
        try:
            for command in self.stub.Heartbeat(iter(self.outbox.get, None)):
                self.commands.put(command)
        except grpc.RpcError:
            pass


def test_a_node_joins_and_the_routing_says_so(
    manager: Manager, url: str, stub: manager_pb2_grpc.ClusterManagerStub
) -> None:
    with closing(RoutingWatcher(url)) as watcher:
        watcher.start()
        node = Node(stub)
        assert node.register().heartbeat_period_s == pytest.approx(0.3)
        routing = watcher.wait_ready(WAIT_S)
        assert routing.cluster_id == manager.cluster_id == node.cluster_id
        assert [endpoint.port for endpoint in watcher.meta_endpoints()] == [METADATA_PORT]
        assert len(routing.chains) == 2
        assert manager.routing() == routing


def test_watchers_see_each_change_at_once(
    url: str, stub: manager_pb2_grpc.ClusterManagerStub
) -> None:
    with closing(RoutingWatcher(url)) as watcher:
        watcher.start()
        Node(stub).register()
        watcher.wait_ready(WAIT_S)
        seen: queue.Queue[tuple[float, int]] = queue.Queue()
        watcher.subscribe(lambda routing: seen.put((time.monotonic(), len(routing.nodes))))
        assert seen.get(timeout=WAIT_S)[1] == 2
        second = Node(stub, 2)
        began = time.monotonic()
        second.register()
        while (got := seen.get(timeout=WAIT_S))[1] != 3:
            pass
        assert got[0] - began < 0.5


def test_an_unregistered_heartbeat_is_answered_with_a_command(
    stub: manager_pb2_grpc.ClusterManagerStub,
) -> None:
    node = Node(stub)
    node.connect()
    node.beat()
    assert node.commands.get(timeout=WAIT_S).register_again


def test_a_refused_node_is_confirmed_by_a_peer_and_declared_gone(
    manager: Manager, stub: manager_pb2_grpc.ClusterManagerStub
) -> None:
    peer, victim = Node(stub, 1), Node(stub, 2)
    victim.liveness_port = free_port()  # nobody listens: as after a kill
    for node in (peer, victim):
        node.register()
        node.connect()
        node.beat()
    time.sleep(0.2)
    accused = manager_pb2.Evidence(
        node_id=victim.id,
        incarnation=victim.incarnation,
        kind=manager_pb2.CONNECTION_RESET,
    )
    stub.ReportEvidence(accused)
    (probe,) = peer.commands.get(timeout=WAIT_S).probes
    assert (probe.node_id, probe.port) == (victim.id, victim.liveness_port)
    result = manager_pb2.ProbeResult(
        node_id=victim.id, incarnation=victim.incarnation, outcome=manager_pb2.REFUSED
    )
    peer.beat(probes=[result])
    deadline = time.monotonic() + WAIT_S
    while {n.id: n.state for n in manager.routing().nodes}[victim.id] is NodeState.ALIVE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_another_cluster_is_refused_by_everything(url: str) -> None:
    other = ClusterId(b"x" * 16)
    with closing(RoutingWatcher(url, cluster_id=other)) as watcher:
        watcher.start()
        with pytest.raises(VersionMismatch, match="another cluster"):
            watcher.wait_ready(WAIT_S)
    link = ManagerLink(url, Incarnation(5), cluster_id=other)
    with pytest.raises(VersionMismatch):
        link.start(WAIT_S)


def test_no_manager_at_the_url_says_what_to_do() -> None:
    with closing(RoutingWatcher(f"fs3://127.0.0.1:{free_port()}")) as watcher:
        watcher.start()
        with pytest.raises(Unavailable, match="fs3 up"):
            watcher.wait_ready(0.5)


def test_an_incomplete_cluster_says_so(url: str) -> None:
    with closing(RoutingWatcher(url)) as watcher:
        watcher.start()
        with pytest.raises(Unavailable, match="not complete yet"):
            watcher.wait_ready(0.5)


def test_clients_live_while_they_say_so(
    url: str, manager: Manager, stub: manager_pb2_grpc.ClusterManagerStub
) -> None:
    Node(stub).register()
    link = ManagerLink(url, Incarnation(77), description="test")
    with closing(link):
        link.start(WAIT_S)
        time.sleep(1.3)  # longer than the expiry
        assert not manager.is_client_dead(Incarnation(77))
        assert manager.is_client_dead(Incarnation(78))
    deadline = time.monotonic() + WAIT_S
    while not manager.is_client_dead(Incarnation(77)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_restarted_manager_is_found_again_with_a_higher_epoch(
    engine: MemoryEngine, manager: Manager, url: str, stub: manager_pb2_grpc.ClusterManagerStub
) -> None:
    Node(stub).register()
    with closing(RoutingWatcher(url)) as watcher:
        watcher.start()
        before = watcher.wait_ready(WAIT_S)
        manager.stop()
        assert watcher.routing() == before
        following = make_manager(engine, manager.port)
        following.start(METADATA_PORT + 1)
        try:
            deadline = time.monotonic() + WAIT_S
            while watcher.routing().epoch == before.epoch:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            after = watcher.routing()
            assert after.version > before.version
            assert after.chains == before.chains
        finally:
            following.stop()


def test_a_port_in_use_is_one_line(manager: Manager) -> None:
    second = make_manager(MemoryEngine(), manager.port)
    try:
        with pytest.raises(Busy, match=f"port {manager.port} on 127.0.0.1 is in use"):
            second.start(METADATA_PORT)
    finally:
        second.stop()


def test_the_fence_refuses_a_deposed_manager(engine: MemoryEngine) -> None:
    old, new = ClusterStore(engine, Incarnation(1)), ClusterStore(engine, Incarnation(2))
    cluster = old.open("here", lambda: ClusterId(b"1" * 16), 0).cluster
    old.commit(((b"CHAIx", b"old"),))
    assert new.open("there", lambda: ClusterId(b"2" * 16), 0).cluster == cluster
    with pytest.raises(Conflict, match="taken over"):
        old.commit(((b"CHAIx", b"older"),))
    assert engine.transact(lambda t: t.get(b"CHAIx")) == b"old"


def test_an_operator_sees_status_health_and_errors(
    url: str, stub: manager_pb2_grpc.ClusterManagerStub
) -> None:
    with AdminClient(url) as admin:
        health = admin.health()
        assert not health.healthy
        assert health.findings[0].what == "the cluster has no chains yet"
        Node(stub).register()
        status = admin.status()
        assert len(status.chains) == 2
        assert {n.node.kind for n in status.nodes} == {NodeKind.META, NodeKind.STORAGE}
    with AdminClient(f"fs3://127.0.0.1:{free_port()}") as admin, pytest.raises(Unavailable):
        admin.status()


def test_a_malformed_identity_is_refused(stub: manager_pb2_grpc.ClusterManagerStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.AllocateNode(manager_pb2.AllocateNodeRequest(identity=b"short"))
    error = control.error_of(caught.value, Endpoint("x", 1))
    assert isinstance(error, InvalidArgument)
