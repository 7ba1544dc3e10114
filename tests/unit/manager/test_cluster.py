"""The cluster machine by its effects: what is stored, published, asked and answered."""

import pytest

from fs3.config.manager import FormationConfig, ManagerConfig
from fs3.errors import InvalidArgument, StaleHandle
from fs3.ids import ChainId, ClusterId, Incarnation, NodeId, node_of, target_id
from fs3.model.routing import NodeKind, NodeState, TargetState
from fs3.wire import cluster_records as records
from fs3.wire import keys
from fs3.wire.cluster_records import ClusterRecord, NodeRecord, TargetRecord
from fs3.wire.liveness import Outcome
from meta_service.core import events, health
from meta_service.core.cluster import CLUSTER_KEY, ClusterMachine, Stored
from meta_service.core.events import (
    Answer,
    Commit,
    Committed,
    HeartbeatReceived,
    Instruct,
    LivenessProbed,
    NodeAccused,
    NodeAnnounced,
    NodeIdAsked,
    ProbeLiveness,
    Publish,
    TargetStatus,
    Ticked,
)
from meta_service.core.membership import Verdict

CONFIG = ManagerConfig(
    directory="", port=1, formation=FormationConfig(nodes=3, replicas=2, chains=3)
)
FRESH = ClusterRecord(ClusterId(b"c" * 16), 1, 0)
BOOT = "boot"


def identity(node: int) -> bytes:
    return bytes([node]) * 16


def record(node: int, incarnation: int = 100, targets: int = 2) -> NodeRecord:
    own = NodeId(node)
    return NodeRecord(
        id=own,
        kind=NodeKind.STORAGE,
        identity=identity(node),
        incarnation=Incarnation(incarnation + node),
        boot_id=BOOT,
        state=NodeState.ALIVE,
        host="127.0.0.1",
        port=9000 + node,
        liveness_port=9100 + node,
        targets=tuple(TargetRecord(target_id(own, 0, i), 7, 9000 + node) for i in range(targets)),
    )


class Driver:
    """Runs a machine whose commits are durable at once, and keeps what it orders."""

    def __init__(self, config: ManagerConfig = CONFIG, stored: Stored | None = None) -> None:
        self.now = 0.0
        self.pairs: dict[bytes, bytes] = {}
        self.machine = ClusterMachine(config, 1, stored or Stored(FRESH), self.now)
        self.effects: list[events.Effect] = []

    def give(self, event: events.Event) -> list[events.Effect]:
        """All effects of the event, those of its commits included."""
        effects = self.machine.handle(event, self.now)
        self.machine.check_invariants()
        for effect in effects:
            if isinstance(effect, Commit):
                self.pairs |= dict(effect.puts)
                effects = effects + self.give(Committed(effect.serial))
        return effects

    def join(self, *nodes: int, incarnation: int = 100) -> None:
        for node in nodes:
            self.give(NodeIdAsked(1, identity(node)))
            self.give(NodeAnnounced(2, record(node, incarnation)))

    def beat(self, *nodes: int) -> None:
        routing = self.machine.published
        for node in nodes:
            incarnation = self.machine.nodes[NodeId(node)].incarnation
            applied = (routing.epoch, routing.version)
            self.give(HeartbeatReceived(NodeId(node), incarnation, applied))

    def kill(self, node: int) -> list[events.Effect]:
        """Proves that a node is gone: a stream broke, its port refuses the manager and a peer."""
        known = self.machine.nodes[NodeId(node)]
        probe = self.give(NodeAccused(known.id, known.incarnation))
        assert [type(effect) for effect in probe] == [ProbeLiveness]
        refused = (known.id, known.incarnation, Outcome.REFUSED, Incarnation(0))
        asked = self.give(LivenessProbed(*refused))
        return self.give(LivenessProbed(*refused, by=asked[0].by))

    def states(self) -> dict[int, str]:
        return {
            chain.id: " ".join(f"{node_of(m.target)}:{m.state.name}" for m in chain.members)
            for chain in self.machine.published.chains
        }


def formed() -> Driver:
    driver = Driver()
    driver.join(1, 2, 3)
    driver.beat(1, 2, 3)
    return driver


def test_nothing_is_said_before_it_is_stored() -> None:
    machine = ClusterMachine(CONFIG, 1, Stored(FRESH), 0.0)
    effects = machine.handle(NodeIdAsked(5, identity(1)), 0.0)
    assert [type(effect) for effect in effects] == [Commit]
    done = machine.handle(Committed(effects[0].serial), 0.0)
    assert done[-1] == Answer(5, node=NodeId(1))


def test_the_same_identity_keeps_its_id() -> None:
    driver = Driver()
    first = driver.give(NodeIdAsked(1, identity(9)))[-1]
    other = driver.give(NodeIdAsked(2, identity(8)))[-1]
    again = driver.give(NodeIdAsked(3, identity(9)))[-1]
    assert (first.node, other.node, again.node) == (1, 2, 1)


def test_a_wanted_id_is_given_when_it_is_free() -> None:
    driver = Driver()
    ids = [
        driver.give(NodeIdAsked(n, identity(n), NodeId(wanted) if wanted else None))[-1].node
        for n, wanted in enumerate([2, 2, 0, 0], 1)
    ]
    assert ids == [2, 1, 3, 4]


def test_the_cluster_forms_when_the_last_node_registers() -> None:
    driver = Driver()
    driver.join(1, 2)
    assert not driver.machine.published.tables
    driver.join(3)
    routing = driver.machine.published
    assert len(routing.chains) == 3
    assert routing.newest_table().chains == (1, 2, 3)
    assert all(len(chain.serving) == 2 for chain in routing.chains)
    assert all(m.port == 9000 + node_of(m.target) for c in routing.chains for m in c.members)


def test_what_is_stored_is_what_a_new_manager_continues_with() -> None:
    driver = formed()
    chains = [records.CHAIN.decode(v) for k, v in driver.pairs.items() if k.startswith(keys.CHAIN)]
    nodes = [records.NODE.decode(v) for k, v in driver.pairs.items() if k.startswith(keys.NODE)]
    cluster = records.CLUSTER.decode(driver.pairs[CLUSTER_KEY])
    table = records.TABLE.decode(driver.pairs[keys.table(1, 1)])
    stored = Stored(cluster, {n.id: n for n in nodes}, {c.id: c for c in chains}, [table])
    following = Driver(stored=stored)
    before, after = driver.machine.published, following.machine.published
    assert (after.version, after.chains, after.tables) == (
        before.version,
        before.chains,
        before.tables,
    )


def test_a_killed_node_leaves_its_chains_at_once() -> None:
    driver = formed()
    effects = driver.kill(2)
    assert any(isinstance(effect, Publish) for effect in effects)
    assert driver.states() == {
        1: "1:SERVING 2:OFFLINE",
        2: "3:SERVING 1:SERVING",
        3: "3:SERVING 2:OFFLINE",
    }


def test_a_refusal_is_confirmed_by_a_chain_peer() -> None:
    driver = formed()
    known = driver.machine.nodes[NodeId(2)]
    driver.give(NodeAccused(known.id, known.incarnation))
    asked = driver.give(
        LivenessProbed(known.id, known.incarnation, Outcome.REFUSED, Incarnation(0))
    )
    assert [(effect.by, effect.port) for effect in asked] == [(1, 9102), (3, 9102)]
    assert driver.machine.published.nodes[1].state is NodeState.ALIVE


def test_a_returning_node_is_copied_and_serves() -> None:
    driver = formed()
    driver.kill(2)
    driver.give(NodeAnnounced(3, record(2, incarnation=200)))
    assert driver.states()[1] == "1:SERVING 2:SYNCING"
    chain = driver.machine.chains[ChainId(1)]
    target = chain.members[1].target
    stale = events.SyncFinished(ChainId(1), chain.version - 1, target)
    exact = events.SyncFinished(ChainId(1), chain.version, target)
    driver.give(HeartbeatReceived(NodeId(2), Incarnation(202), finished=(stale,)))
    assert driver.states()[1] == "1:SERVING 2:SYNCING"
    driver.give(HeartbeatReceived(NodeId(2), Incarnation(202), finished=(exact,)))
    assert driver.states()[1] == "1:SERVING 2:SERVING"


def test_silence_is_published_by_the_tick() -> None:
    driver = formed()
    for _ in range(50):
        driver.now += 0.1
        driver.beat(1, 3)
        driver.give(Ticked())
    assert driver.states()[1] == "1:SERVING 2:OFFLINE"
    assert [n.state for n in driver.machine.published.nodes] == [
        NodeState.ALIVE,
        NodeState.DEAD,
        NodeState.ALIVE,
    ]


def test_a_failed_target_leaves_its_chain_and_the_node_stays() -> None:
    driver = formed()
    target = driver.machine.nodes[NodeId(2)].targets[0].id
    failed = TargetStatus(target, failed=True, cause="disk error")
    driver.give(HeartbeatReceived(NodeId(2), Incarnation(102), targets=(failed,)))
    states = driver.states()
    assert sum("2:OFFLINE" in text for text in states.values()) == 1
    assert sum("2:SERVING" in text for text in states.values()) == 1


def test_an_unregistered_node_is_told_so() -> None:
    driver = formed()
    effects = driver.give(HeartbeatReceived(NodeId(2), Incarnation(555)))
    assert effects == [Instruct(NodeId(2), Verdict.UNREGISTERED)]


def test_a_gone_incarnation_may_not_come_back() -> None:
    driver = formed()
    driver.kill(2)
    assert driver.give(HeartbeatReceived(NodeId(2), Incarnation(102))) == [
        Instruct(NodeId(2), Verdict.EXCLUDED)
    ]
    answer = driver.give(NodeAnnounced(9, record(2)))[-1]
    assert isinstance(answer.error, StaleHandle)


def test_a_directory_of_another_cluster_is_refused() -> None:
    driver = formed()
    answer = driver.give(NodeAnnounced(9, record(7)))[-1]
    assert isinstance(answer.error, InvalidArgument)
    assert "another cluster" in str(answer.error)


def test_too_few_targets_is_a_finding_not_a_crash() -> None:
    config = ManagerConfig(
        directory="", port=1, formation=FormationConfig(nodes=3, replicas=2, chains=30)
    )
    driver = Driver(config)
    driver.join(1, 2, 3)
    assert not driver.machine.tables
    findings = health.examine(driver.machine, 0.0)
    assert findings[0].is_error
    assert "targets" in findings[0].cause


# Health


def words(driver: Driver) -> list[str]:
    return [f.what for f in health.examine(driver.machine, driver.now) if f.is_error]


def test_a_whole_cluster_is_healthy_and_writable() -> None:
    driver = formed()
    assert words(driver) == []
    assert health.is_writable(driver.machine)


def test_it_is_not_writable_before_every_node_has_the_routing() -> None:
    driver = Driver()
    driver.join(1, 2, 3)
    assert not health.is_writable(driver.machine)
    driver.beat(1, 2)
    assert not health.is_writable(driver.machine)
    driver.beat(3)
    assert health.is_writable(driver.machine)


def test_missing_nodes_are_named() -> None:
    driver = Driver()
    driver.join(1)
    assert words(driver) == ["the cluster has no chains yet"]
    assert "1 of 3" in health.examine(driver.machine, 0.0)[0].cause


def test_a_dead_node_is_named_with_what_to_do() -> None:
    driver = formed()
    driver.kill(2)
    finding = health.examine(driver.machine, driver.now)[0]
    assert "storage node 2 at 127.0.0.1:9002 is dead" in finding.what
    assert finding.cause == "its process is gone"
    assert "2 chains" in finding.consequence
    assert "fs3 up" in finding.next
    assert health.is_writable(driver.machine) is False  # the others have not applied it yet
    driver.beat(1, 3)
    assert health.is_writable(driver.machine)


def test_a_chain_without_server_names_who_must_return() -> None:
    driver = formed()
    driver.kill(2)
    driver.kill(1)
    assert any("chain 1 has no serving member" in text for text in words(driver))
    finding = next(f for f in health.examine(driver.machine, driver.now) if "chain 1 has" in f.what)
    assert finding.next.startswith("start storage nodes 1 ")


def test_a_copy_under_way_is_a_warning() -> None:
    driver = formed()
    driver.kill(2)
    driver.give(NodeAnnounced(3, record(2, incarnation=200)))
    progress = events.SyncProgress(ChainId(1), target_id(NodeId(2), 0, 0), 3, 10)
    driver.give(HeartbeatReceived(NodeId(1), Incarnation(101), progress=(progress,)))
    assert words(driver) == []
    warnings = [f.what for f in health.examine(driver.machine, driver.now)]
    assert "chain 1 is copied to node 2, 3 of 10 chunks" in warnings


def test_mass_silence_is_an_error() -> None:
    driver = formed()
    for _ in range(50):
        driver.now += 0.1
        driver.beat(1)
        driver.give(Ticked())
    assert any("fell silent at once" in text for text in words(driver))


def test_a_failed_and_a_full_target_are_named() -> None:
    driver = formed()
    first, second = (t.id for t in driver.machine.nodes[NodeId(2)].targets)
    driver.give(
        HeartbeatReceived(
            NodeId(2),
            Incarnation(102),
            targets=(
                TargetStatus(first, failed=True, cause="disk error"),
                TargetStatus(second, capacity_bytes=1000, free_bytes=10),
            ),
        )
    )
    found = health.examine(driver.machine, driver.now)
    assert any(f.is_error and f.cause == "disk error" for f in found)
    assert any(not f.is_error and "nearly full" in f.what for f in found)


@pytest.mark.parametrize("state", [TargetState.OFFLINE, TargetState.LAST, TargetState.SYNCING])
def test_every_state_but_serving_has_a_finding(state: TargetState) -> None:
    """Whatever a chain member is in, an operator is told."""
    driver = formed()
    driver.kill(2)
    if state is TargetState.LAST:
        driver.kill(1)
    if state is TargetState.SYNCING:
        driver.give(NodeAnnounced(3, record(2, incarnation=200)))
    assert state.name in driver.states()[1]
    found = [f.what for f in health.examine(driver.machine, driver.now)]
    assert any("chain 1" in text or "is dead" in text for text in found)
