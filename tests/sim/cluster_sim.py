"""Managers, nodes and clients on virtual time: the shipped cluster machine under faults.

What is real: `ClusterMachine`, its store format and its fence. What is modelled: the network
(delay, loss by partition), processes (kill, restart, host reboot, silence), and data: a target is a
set of write numbers, which survives a killed process. A write is acknowledged when every SERVING
and SYNCING member has it under one chain version, as the replicas guarantee.

Checked after every event, and once more when everything was healed:
  * a (chain, version) is published with one content only, and only what is durable is published;
  * nodes only ever move to a newer (epoch, version);
  * every SERVING member and every member of the last serving set holds every acknowledged write;
  * machine and chain invariants;
  * at the end every chain serves with all members, and, while some nodes stay dead, every chain
    with a complete member that is up serves.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fs3.config.manager import FormationConfig, ManagerConfig
from fs3.ids import ChainId, ClusterId, Incarnation, NodeId, TargetId, node_of, target_id
from fs3.model.routing import Chain, NodeKind, Routing, TargetState
from fs3.wire import cluster_records as records
from fs3.wire import keys
from fs3.wire.cluster_records import ChainRecord, ClusterRecord, NodeRecord, TargetRecord
from fs3.wire.liveness import Outcome
from meta_service.core import chains, events
from meta_service.core.cluster import CLUSTER_KEY, ClusterMachine, Stored
from meta_service.core.membership import Verdict

SERVING, SYNCING = TargetState.SERVING, TargetState.SYNCING
TARGETS_PER_NODE = 6
HEARTBEAT_S = 0.3
TICK_S = 0.1
FAULTS = (
    "kill",
    "restart",
    "reboot",
    "silence",
    "speak",
    "cut",
    "heal",
    "manager",
    "two managers",
    "kill all",
    "lag",
)


@dataclass
class Disk:
    """Of one target; survives everything but being replaced."""

    generation: int
    writes: set[int] = field(default_factory=set)


class Store:
    """The metadata store that managers share: durable pairs and the epoch that may write."""

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes] = {
            CLUSTER_KEY: records.CLUSTER.encode(ClusterRecord(ClusterId(b"s" * 16), 1, 0))
        }
        self.epoch = 0

    def open(self) -> Stored:
        self.epoch += 1
        found = {k: v for k, v in self.pairs.items() if k != CLUSTER_KEY}
        return Stored(
            cluster=records.CLUSTER.decode(self.pairs[CLUSTER_KEY]),
            nodes={n.id: n for n in map(records.NODE.decode, _under(found, keys.NODE))},
            chains={c.id: c for c in map(records.CHAIN.decode, _under(found, keys.CHAIN))},
            tables=list(map(records.TABLE.decode, _under(found, keys.TABLE))),
        )

    def chains(self) -> dict[ChainId, ChainRecord]:
        found = map(records.CHAIN.decode, _under(self.pairs, keys.CHAIN))
        return {chain.id: chain for chain in found}


class SimNode:
    """A storage node as its shell behaves: registers, heartbeats, applies routing, copies."""

    def __init__(self, sim: "Simulation", number: int) -> None:
        self.sim = sim
        self.identity = bytes([number]) * 16
        self.id: NodeId | None = None
        self.number = number
        self.boot = 1
        self.incarnation = Incarnation(0)
        self.is_up = False
        self.is_registered = False
        self.routing: Routing | None = None
        self.disks = [Disk(sim.dice.getrandbits(32)) for _ in range(TARGETS_PER_NODE)]
        self.finished: dict[ChainId, events.SyncFinished] = {}

    def start(self) -> None:
        assert not self.is_up
        self.incarnation = Incarnation(self.sim.dice.getrandbits(62) + 1)
        self.is_up, self.is_registered, self.routing = True, False, None
        self.finished.clear()
        self._beat(self.incarnation)

    def kill(self) -> None:
        self.is_up = False
        self.sim.stream_broke(self)

    def record(self) -> NodeRecord:
        assert self.id is not None
        return NodeRecord(
            id=self.id,
            kind=NodeKind.STORAGE,
            identity=self.identity,
            incarnation=self.incarnation,
            boot_id=f"boot {self.number}.{self.boot}",
            host="sim",
            port=self.number,
            liveness_port=self.number,
            targets=tuple(
                TargetRecord(target_id(self.id, 0, i), disk.generation, 1)
                for i, disk in enumerate(self.disks)
            ),
        )

    def answered(self, incarnation: Incarnation, answer: events.Answer) -> None:
        if incarnation != self.incarnation or not self.is_up:
            return
        if answer.error is not None:
            self._start_over()
        elif self.id is None:
            self.id = answer.node
            self._register()
        else:
            self.is_registered = True
            self._heartbeat()

    def instructed(self, verdict: Verdict) -> None:
        if self.is_up and verdict is Verdict.UNREGISTERED:
            self._register()
        elif self.is_up and verdict is Verdict.EXCLUDED:
            self._start_over()

    def take(self, routing: Routing) -> None:
        """Adopts a newer routing; copies begin under the new chain versions."""
        if not self.is_up or self.id is None:
            return
        if self.routing is not None and (routing.epoch, routing.version) <= (
            self.routing.epoch,
            self.routing.version,
        ):
            return
        self.routing = routing
        for chain in routing.chains:
            is_source = chain.serving and node_of(chain.serving[-1].target) == self.id
            if is_source and self.chain(chain.id) is not None:
                self._copy(chain)
        self.sim.after(0.001, self._heartbeat)

    def chain(self, chain: ChainId) -> Chain | None:
        """As this incarnation serves it; None where it has no role."""
        known = self.routing.chain(chain) if self.is_up and self.routing is not None else None
        own = (
            next((m for m in known.members if node_of(m.target) == self.id), None)
            if known
            else None
        )
        return known if own is not None and own.incarnation == self.incarnation else None

    def _start_over(self) -> None:
        self.kill()
        self.start()

    def _beat(self, incarnation: Incarnation) -> None:
        if not self.is_up or incarnation != self.incarnation:
            return
        if self.is_registered:
            self._heartbeat()
        else:
            self._register()
        self.sim.after(HEARTBEAT_S, lambda: self._beat(incarnation))

    def _register(self) -> None:
        incarnation = self.incarnation

        def answered(answer: events.Answer) -> None:
            self.sim.to_node(self, lambda: self.answered(incarnation, answer))

        if self.id is None:
            self.sim.ask(self, lambda token: events.NodeIdAsked(token, self.identity), answered)
        else:
            record = self.record()
            self.sim.ask(self, lambda token: events.NodeAnnounced(token, record), answered)

    def _heartbeat(self) -> None:
        if not (self.is_up and self.is_registered and self.id is not None):
            return
        applied = (self.routing.epoch, self.routing.version) if self.routing else (0, 0)
        finished = tuple(self.finished.values())
        event = events.HeartbeatReceived(self.id, self.incarnation, applied, finished=finished)
        self.sim.to_manager(self, lambda manager: manager.happened(event))

    def _copy(self, chain: Chain) -> None:
        syncing = next((m for m in chain.members if m.state is SYNCING), None)
        if syncing is None:
            return
        incarnation = self.incarnation

        def copied() -> None:
            target = self.sim.nodes_by_id[node_of(syncing.target)]
            mine = self.chain(chain.id) if incarnation == self.incarnation else None
            theirs = target.chain(chain.id)
            if mine is None or theirs is None or mine.version != chain.version:
                return
            if theirs.version != chain.version or not self.sim.is_connected(self, target):
                self.sim.after(0.5, copied)
                return
            source = self.sim.disk(chain.serving[-1].target)
            self.sim.disk(syncing.target).writes |= source.writes
            target.finished[chain.id] = events.SyncFinished(chain.id, chain.version, syncing.target)
            target._heartbeat()

        self.sim.after(self.sim.dice.uniform(0.01, 1.0), copied)


class SimManager:
    """One manager process: the real machine, commits that take time, its own epoch."""

    def __init__(self, sim: "Simulation") -> None:
        self.sim = sim
        stored = sim.store.open()
        self.epoch = sim.store.epoch
        self.is_up = True
        self.machine = ClusterMachine(sim.config, self.epoch, stored, sim.now)
        self._tokens: dict[int, Callable[[events.Answer], None]] = {}
        self._asked = 0
        self._tick()

    def happened(self, event: events.Event) -> None:
        if not self.is_up:
            return
        effects = self.machine.handle(event, self.sim.now)
        self.machine.check_invariants()
        for effect in effects:
            self._perform(effect)

    def ask(self, make: events.Asking, answered: Callable[[events.Answer], None]) -> None:
        self._asked += 1
        token = self._asked
        self._tokens[token] = answered
        self.happened(make(token))

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Commit():
                self.sim.commit(self, effect)
            case events.Publish():
                self.sim.published(self, effect.routing)
            case events.Answer():
                self._tokens.pop(effect.token)(effect)
            case events.Instruct():
                node = self.sim.nodes_by_id[effect.node]
                self.sim.to_node(node, lambda: node.instructed(effect.verdict))
            case events.ProbeLiveness():
                self.sim.probe(self, effect)

    def _tick(self) -> None:
        if self.is_up:
            self.happened(events.Ticked())
            lag_s = self.sim.lag_s if self.sim.dice.random() < 0.02 else 0.0
            self.sim.after(TICK_S + lag_s, self._tick)


class Simulation:
    """One run of `seed`.

    Args:
        nodes: storage nodes.
        replicas: members per chain.
    """

    def __init__(self, seed: int, *, nodes: int = 4, replicas: int = 2) -> None:
        self.dice = random.Random(seed)
        chains_count = nodes * TARGETS_PER_NODE // replicas
        self.config = ManagerConfig(
            directory="",
            port=1,
            formation=FormationConfig(nodes=nodes, replicas=replicas, chains=chains_count),
        )
        self.now = 0.0
        self.lag_s = 0.0
        self.reached: Counter[str] = Counter()
        self.acknowledged: dict[ChainId, set[int]] = {}
        self.contents: dict[tuple[int, int], Chain] = {}
        self.store = Store()
        self.trace: list[object] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._write = 0
        self._cut: set[frozenset[int]] = set()
        self._silenced: set[int] = set()
        self.nodes = [SimNode(self, number) for number in range(1, nodes + 1)]
        self.managers = [SimManager(self)]
        for node in self.nodes:
            node.start()

    # What nodes and managers use

    @property
    def primary(self) -> SimManager:
        return self.managers[-1]

    @property
    def nodes_by_id(self) -> dict[NodeId, SimNode]:
        return {node.id: node for node in self.nodes if node.id is not None}

    def disk(self, target: TargetId) -> Disk:
        return self.nodes_by_id[node_of(target)].disks[target & 0xFFFF]

    def after(self, delay_s: float, work: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._count, work))

    def is_connected(self, one: SimNode, other: SimNode) -> bool:
        return frozenset((one.number, other.number)) not in self._cut

    def to_manager(self, node: SimNode, deliver: Callable[[SimManager], None]) -> None:
        if node.number not in self._silenced:
            self.after(self._delay(), lambda: deliver(self.primary))

    def to_node(self, node: SimNode, deliver: Callable[[], None]) -> None:
        if node.number not in self._silenced:
            self.after(self._delay(), deliver)

    def ask(
        self, node: SimNode, make: events.Asking, answered: Callable[[events.Answer], None]
    ) -> None:
        self.to_manager(node, lambda manager: manager.ask(make, answered))

    def stream_broke(self, node: SimNode) -> None:
        if node.id is not None:
            event = events.NodeAccused(node.id, node.incarnation)
            self.to_manager(node, lambda manager: manager.happened(event))

    def commit(self, manager: SimManager, commit: events.Commit) -> None:
        def stored() -> None:
            if manager.epoch != self.store.epoch:
                manager.is_up = False  # fenced: a newer primary has taken the epoch
                self.reached["fenced"] += 1
            elif manager.is_up:
                self.store.pairs |= dict(commit.puts)
                manager.happened(events.Committed(commit.serial))

        self.after(0.003, stored)

    def published(self, manager: SimManager, routing: Routing) -> None:
        self.trace.append((round(self.now, 6), routing.epoch, routing.version))
        durable = self.store.chains()
        assert manager.epoch == self.store.epoch, "a deposed manager published"
        for chain in routing.chains:
            known = self.contents.setdefault((chain.id, chain.version), chain)
            assert [(m.target, m.state) for m in known.members] == [
                (m.target, m.state) for m in chain.members
            ], f"chain {chain.id} version {chain.version} was published with two contents"
            assert chain.id in durable, "published before it was durable"
            assert durable[chain.id].version >= chain.version, "published before it was durable"
        for node in self.nodes:
            self.to_node(node, lambda node=node: node.take(routing))

    def probe(self, manager: SimManager, effect: events.ProbeLiveness) -> None:
        node = self.nodes_by_id[effect.node]
        by = self.nodes_by_id[effect.by] if effect.by is not None else None
        if by is not None and (not by.is_up or by.number in self._silenced):
            return
        is_reachable = (
            node.number not in self._silenced if by is None else self.is_connected(by, node)
        )
        outcome, answered = Outcome.SILENT, Incarnation(0)
        if is_reachable:
            outcome = Outcome.ANSWERED if node.is_up else Outcome.REFUSED
            answered = node.incarnation if node.is_up else answered
        self.reached[f"probe {outcome.name}"] += 1
        event = events.LivenessProbed(effect.node, effect.incarnation, outcome, answered, effect.by)
        self.after(self._delay(), lambda: manager.happened(event))

    # The run

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.now, _, work = heapq.heappop(self._queue)
            work()
            self._check()
        self.now = until

    def write_somewhere(self) -> None:
        """A client writes one number to one chain, by the head's view of it."""
        routing = self.primary.machine.published
        if not routing.chains:
            return
        seen = self.dice.choice(routing.chains)
        if not seen.serving:
            return
        self._write += 1
        head = self.nodes_by_id[node_of(seen.serving[0].target)]
        chain = head.chain(seen.id)
        if chain is None or not chain.serving or node_of(chain.serving[0].target) != head.id:
            return
        taking = [m for m in chain.members if m.state in (SERVING, SYNCING)]
        for member in taking:
            node = self.nodes_by_id[node_of(member.target)]
            theirs = node.chain(chain.id)
            is_reachable = node is head or self.is_connected(head, node)
            if theirs is None or theirs.version != chain.version or not is_reachable:
                if not node.is_up:
                    self._accuse(head, node)
                return
            self.disk(member.target).writes.add(self._write)
        self.acknowledged.setdefault(chain.id, set()).add(self._write)
        self.reached["write"] += 1

    def fault(self) -> None:
        """One random fault."""
        node = self.dice.choice(self.nodes)
        kind = self.dice.choice(FAULTS)
        self.reached[kind] += 1
        self.trace.append((round(self.now, 6), kind, node.number))
        match kind:
            case "kill":
                self._kill(node)
            case "restart":
                self._kill(node)
                node.start()
            case "reboot":
                self._kill(node)
                node.boot += 1
                node.start()
            case "silence":
                self._silenced.add(node.number)
            case "speak":
                self._silenced.discard(node.number)
            case "cut":
                other = self.dice.choice(self.nodes)
                self._cut |= {frozenset((node.number, other.number))} if other != node else set()
            case "heal":
                self._cut.clear()
            case "manager":
                self.primary.is_up = False
                self._new_manager()
            case "two managers":  # the old one runs on until it is fenced
                self._new_manager()
            case "kill all":
                self.primary.is_up = False
                for each in self.nodes:
                    self._kill(each)
                self._new_manager()
                for each in self.nodes:
                    self.after(self.dice.uniform(0, 0.5), lambda each=each: self._revive(each))
            case "lag":
                self.lag_s = self.dice.choice([0.0, 0.5])

    def heal(self, *, leaving_dead: int = 0) -> None:
        """Ends all faults, restarts all but `leaving_dead` nodes, and waits."""
        self._cut.clear()
        self._silenced.clear()
        self.lag_s = 0.0
        for node in self.nodes[leaving_dead:]:
            self._revive(node)
        for node in self.nodes[:leaving_dead]:
            self._kill(node)
        self.run(40.0)

    def check_live(self) -> None:
        """Every chain with a complete member that is up serves."""
        for chain in self.store.chains().values():
            back = [e for e in chain.last_serving if self._is_intact(e.target, e.generation)]
            same_boot = [e for e in back if self._boot(e.target) == e.boot_id]
            may_serve = bool(same_boot) or len(back) == len(chain.last_serving)
            serves = any(m.state is SERVING for m in chain.members)
            assert serves or not may_serve, f"chain {chain.id} is stuck: {chain}"

    def check_whole(self) -> None:
        """Every chain serves with all its members."""
        for chain in self.store.chains().values():
            states = [member.state for member in chain.members]
            assert states == [SERVING] * len(states), f"chain {chain.id} did not recover: {chain}"

    def _check(self) -> None:
        for chain in self.store.chains().values() if self._changed() else ():
            chains.check_invariants(chain)
        for chain in self.primary.machine.chains.values():
            acknowledged = self.acknowledged.get(chain.id, set())
            holders = {m.target for m in chain.members if m.state is SERVING}
            for target in holders | {e.target for e in chain.last_serving}:
                missing = acknowledged - self.disk(target).writes
                assert not missing, f"chain {chain.id}: {target:#x} lost writes {missing}"

    def _changed(self) -> bool:
        return self._count % 16 == 0

    def _accuse(self, by: SimNode, node: SimNode) -> None:
        assert node.id is not None
        event = events.NodeAccused(node.id, node.incarnation)
        self.to_manager(by, lambda manager: manager.happened(event))

    def _new_manager(self) -> None:
        self.managers.append(SimManager(self))

    def _kill(self, node: SimNode) -> None:
        if node.is_up:
            node.kill()

    def _revive(self, node: SimNode) -> None:
        if not node.is_up:
            node.start()

    def _is_intact(self, target: TargetId, generation: int) -> bool:
        is_up = self.nodes_by_id[node_of(target)].is_up
        return is_up and self.disk(target).generation == generation

    def _boot(self, target: TargetId) -> str:
        return self.nodes_by_id[node_of(target)].record().boot_id

    def _delay(self) -> float:
        return self.dice.uniform(0.0001, 0.005)


def run_seed(seed: int, *, nodes: int = 4, replicas: int = 2, faults: int = 25) -> Simulation:
    """A whole run: form, write under faults, heal twice.

    Raises:
        AssertionError: a checker saw a violation.
    """
    sim = Simulation(seed, nodes=nodes, replicas=replicas)
    sim.run(1.0)
    assert sim.primary.machine.tables, "the cluster did not form"
    for _ in range(faults):
        sim.fault()
        for _ in range(8):
            sim.write_somewhere()
            sim.run(sim.dice.choice([0.001, 0.02, 0.1, 0.6]))
    sim.heal(leaving_dead=1)
    sim.check_live()
    sim.heal()
    sim.check_live()
    sim.check_whole()
    return sim


def _under(pairs: dict[bytes, bytes], prefix: bytes) -> list[bytes]:
    return [value for key, value in sorted(pairs.items()) if key.startswith(prefix)]
