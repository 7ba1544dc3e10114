"""The cluster machine: events in, effects out; nodes, chains and tables of one cluster.

Order is data: every change is stored first (`Commit`); only the event that it is durable
(`Committed`) publishes the routing that tells of it and answers whoever asked. So no node or client
ever acts on a chain version that a restarted manager would not know.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from fs3.config.manager import ManagerConfig
from fs3.errors import Fs3Error, InvalidArgument, StaleHandle
from fs3.ids import ChainId, ChainVersion, Incarnation, NodeId, TargetId, node_of
from fs3.model.routing import (
    Chain,
    ChainTable,
    Member,
    Node,
    NodeKind,
    NodeState,
    Routing,
    TargetState,
)
from fs3.wire import cluster_records as records
from fs3.wire import keys
from fs3.wire.cluster_records import (
    ChainRecord,
    ClusterRecord,
    MemberRecord,
    NodeRecord,
    TargetRecord,
)
from meta_service.core import chains, events
from meta_service.core.chains import Sight
from meta_service.core.events import Answer, Effect, Pending, SyncProgress, TargetStatus
from meta_service.core.membership import Membership, Standing, Verdict
from meta_service.core.placement import Place, place_chains

CLUSTER_KEY = keys.config("cluster")
PROBING_PEERS = 2
"""Nodes that are asked to confirm a refusal; one is enough, the second in case the first dies."""
STEPS_MAX = 8
"""A chain settles within so many versions after one event; more would be a loop in the table."""

_NO_TARGET = Sight(Standing.DEAD, Incarnation(0), 0, "")


@dataclass(slots=True)
class Stored:
    """What the store holds when a manager starts."""

    cluster: ClusterRecord
    nodes: dict[NodeId, NodeRecord] = field(default_factory=dict)
    chains: dict[ChainId, ChainRecord] = field(default_factory=dict)
    tables: list[ChainTable] = field(default_factory=list)


class ClusterMachine:
    """All decisions of one primary.

    Args:
        config: settings.
        epoch: of this primary, higher than of every one before.
        stored: what the primary before left.
        now: seconds of a clock that never goes back, as in every `handle`.
    """

    def __init__(self, config: ManagerConfig, epoch: int, stored: Stored, now: float) -> None:
        self.config = config
        self._epoch = epoch
        self.cluster = stored.cluster
        self.nodes = dict(stored.nodes)
        self.chains = dict(stored.chains)
        self.tables = list(stored.tables)
        self.membership = Membership(config.membership, now)
        self.statuses: dict[TargetId, TargetStatus] = {}
        self.progress: dict[ChainId, SyncProgress] = {}
        self.applied: dict[NodeId, tuple[int, int]] = {}
        self.obstacle: InvalidArgument | None = None
        self._local: set[NodeId] = set()
        self._seen: dict[NodeId, Standing] = {}
        self._chains_of: dict[NodeId, set[ChainId]] = {}
        for chain in self.chains.values():
            self._index(chain)
        self._serial = 0
        self._pending: dict[int, Pending] = {}
        self._dirty: dict[bytes, bytes] = {}
        self._answers: list[Answer] = []
        self._recall(now)
        self.published = self._routing()

    def handle(self, event: events.Event, now: float) -> list[Effect]:
        """Takes one event; `now` is the time it happened."""
        effects: list[Effect] = []
        match event:
            case events.NodeIdAsked():
                self._on_node_id_asked(event)
            case events.NodeAnnounced():
                self._on_announced(event, now)
            case events.HeartbeatReceived():
                self._on_heartbeat(event, now, effects)
            case events.NodeAccused():
                self._accuse(event.node, event.incarnation, now, effects)
            case events.LivenessProbed():
                self._on_probed(event, now, effects)
            case events.Ticked():
                self._on_ticked(now, effects)
            case events.Committed():
                self._on_committed(event.serial, effects)
        if self._dirty or self._answers:
            effects.append(self._commit())
        return effects

    def alive_storage(self) -> list[NodeRecord]:
        return [n for n in self.storage() if self.standing(n.id) is Standing.ALIVE]

    def storage(self) -> list[NodeRecord]:
        """Storage nodes that have registered at least once."""
        return [n for n in self.nodes.values() if n.kind is NodeKind.STORAGE and n.incarnation]

    def standing(self, node: NodeId) -> Standing:
        return Standing.ALIVE if node in self._local else self.membership.standing(node)

    def sight(self, target: TargetId) -> Sight:
        """What is known of a target now."""
        node = self.nodes.get(node_of(target))
        if node is None:
            return _NO_TARGET
        offered = _offered(node, target)
        standing = self.membership.standing(node.id)
        status = self.statuses.get(target)
        if offered is None or (status is not None and status.failed):
            return Sight(Standing.DEAD, node.incarnation, 0, node.boot_id)
        return Sight(standing, node.incarnation, offered.generation, node.boot_id)

    def has_applied(self, node: NodeId) -> bool:
        """The node serves by the newest published routing."""
        routing = self.published
        return self.applied.get(node, (0, 0)) >= (routing.epoch, routing.version)

    def check_invariants(self) -> None:
        self.membership.check_invariants()
        for chain in self.chains.values():
            chains.check_invariants(chain)
        members = [m.target for chain in self.chains.values() for m in chain.members]
        assert len(members) == len(set(members)), "a target is in two chains"
        for table in self.tables:
            assert set(table.chains) <= set(self.chains), f"{table} names unknown chains"

    # Events

    def _on_node_id_asked(self, event: events.NodeIdAsked) -> None:
        known = next((n for n in self.nodes.values() if n.identity == event.identity), None)
        if known is None:
            known = NodeRecord(self._free_id(event.wanted), NodeKind.STORAGE, event.identity)
            self._store_node(known)
        self._answers.append(Answer(event.token, node=known.id))

    def _on_announced(self, event: events.NodeAnnounced, now: float) -> None:
        error = self._refusal(event.record)
        if error is None and self._is_excluded(event.record):
            error = StaleHandle(
                f"incarnation {event.record.incarnation} of node {event.record.id} was proven "
                "gone; start over with a new one"
            )
        if error is not None:
            self._answers.append(Answer(event.token, error=error))
            return
        if event.is_local:
            self._local.add(event.record.id)
        else:
            self.membership.registered(event.record.id, event.record.incarnation, now)
        self._forget_statuses(event.record)
        record = msgspec.structs.replace(event.record, state=NodeState.ALIVE)
        if record != self.nodes.get(record.id):
            self._store_node(record)
            self._settle(record.id)
        self._note_standing(record.id)
        self._form()
        self._answers.append(Answer(event.token, node=record.id))

    def _on_heartbeat(
        self, event: events.HeartbeatReceived, now: float, effects: list[Effect]
    ) -> None:
        verdict = self.membership.heard(event.node, event.incarnation, now)
        if verdict is not Verdict.WELCOME:
            effects.append(events.Instruct(event.node, verdict))
            return
        self.applied[event.node] = event.applied
        self._note_standing(event.node)
        for status in event.targets:
            self._take_status(status)
        for progress in event.progress:
            self.progress[progress.chain] = progress
        for finished in event.finished:
            self._take_finished(finished)

    def _on_probed(self, event: events.LivenessProbed, now: float, effects: list[Effect]) -> None:
        about = (event.node, event.incarnation, event.outcome, event.answered, now)
        if event.by is None:
            if self.membership.probed(*about):
                effects += (self._probe(event.node, peer) for peer in self._peers(event.node))
        elif self.membership.peer_probed(*about):
            effects.append(self._probe(event.node))
        self._note_standing(event.node)

    def _on_ticked(self, now: float, effects: list[Effect]) -> None:
        for suspect in self.membership.tick(now, self.config.tick_s):
            self._accuse(suspect, self.nodes[suspect].incarnation, now, effects)
        for node in list(self.nodes):
            self._note_standing(node)

    def _on_committed(self, serial: int, effects: list[Effect]) -> None:
        assert serial == min(self._pending), "commits are applied in order"
        pending = self._pending.pop(serial)
        if pending.routing.version > self.published.version:
            self.published = pending.routing
            effects.append(events.Publish(pending.routing))
        effects += pending.answers

    # Decisions

    def _accuse(
        self, node: NodeId, incarnation: Incarnation, now: float, effects: list[Effect]
    ) -> None:
        if self.membership.accused(node, incarnation, now):
            effects.append(self._probe(node))

    def _free_id(self, wanted: NodeId | None) -> NodeId:
        if wanted and wanted not in self.nodes:
            return wanted
        free = self.cluster.next_node
        while free in self.nodes:
            free += 1
        self.cluster = msgspec.structs.replace(self.cluster, next_node=free + 1)
        return NodeId(free)

    def _refusal(self, record: NodeRecord) -> Fs3Error | None:
        known = self.nodes.get(record.id)
        if known is None or known.identity != record.identity:
            return InvalidArgument(
                f"node {record.id} with this identity was never given out by this cluster; its "
                "directory belongs to another cluster or was copied"
            )
        return None

    def _is_excluded(self, record: NodeRecord) -> bool:
        known = self.nodes[record.id]
        is_same = known.incarnation == record.incarnation
        return is_same and self.membership.standing(record.id) is Standing.GONE

    def _forget_statuses(self, record: NodeRecord) -> None:
        """A new incarnation reports its targets anew; what failed before may be replaced."""
        known = self.nodes.get(record.id)
        if known is not None and known.incarnation != record.incarnation:
            for target in known.targets:
                self.statuses.pop(target.id, None)

    def _take_status(self, status: TargetStatus) -> None:
        known = self.statuses.get(status.id)
        self.statuses[status.id] = status
        if status.failed != (known is not None and known.failed):
            self._settle(node_of(status.id))

    def _take_finished(self, finished: events.SyncFinished) -> None:
        chain = self.chains.get(finished.chain)
        if chain is not None and chain.version == finished.version:
            self._settle_chain(chain.id, synced=finished.target)

    def _note_standing(self, node: NodeId) -> None:
        """Takes what a change of standing means for the node and for its chains."""
        record = self.nodes.get(node)
        standing = self.standing(node)
        if record is None or standing is self._seen.get(node, Standing.UNKNOWN):
            return
        self._seen[node] = standing
        state = NodeState.ALIVE if standing is Standing.ALIVE else NodeState.DEAD
        if state is not record.state and record.incarnation:
            self._store_node(msgspec.structs.replace(record, state=state))
        self._settle(node)
        self._form()

    def _settle(self, node: NodeId) -> None:
        for chain in sorted(self._chains_of.get(node, ())):
            self._settle_chain(chain)

    def _settle_chain(self, chain_id: ChainId, synced: TargetId | None = None) -> None:
        for _ in range(STEPS_MAX):
            following = chains.step(self.chains[chain_id], self.sight, synced)
            if following is None:
                return
            synced = None
            self._store_chain(following)
        raise AssertionError(f"chain {chain_id} does not settle: {self.chains[chain_id]}")

    def _form(self) -> None:
        """Makes the first chain table once the stated number of storage nodes is there."""
        formation = self.config.formation
        if self.tables:
            return
        alive = self.alive_storage()
        if len(alive) < formation.nodes:
            return
        places = [Place(n.id, n.domain, n.weight, tuple(t.id for t in n.targets)) for n in alive]
        try:
            placed = place_chains(places, replicas=formation.replicas, chains=formation.chains)
        except InvalidArgument as error:
            self.obstacle = error
            return
        self.obstacle = None
        for number, members in enumerate(placed, 1):
            self._store_chain(self._new_chain(ChainId(number), members))
        table = ChainTable(1, 1, tuple(ChainId(number) for number in range(1, len(placed) + 1)))
        self.tables.append(table)
        self._dirty[keys.table(table.id, table.version)] = records.TABLE.encode(table)

    def _new_chain(self, chain: ChainId, targets: Iterable[TargetId]) -> ChainRecord:
        members = tuple(MemberRecord(target, 0, TargetState.SERVING) for target in targets)
        return chains.create(ChainRecord(chain, ChainVersion(0), members, ()), self.sight)

    def _peers(self, node: NodeId) -> list[NodeId]:
        """Living nodes to confirm a refusal: chain peers first."""
        shared = {
            node_of(member.target)
            for chain in self.chains.values()
            if any(node_of(m.target) == node for m in chain.members)
            for member in chain.members
        }
        others = [n.id for n in self.alive_storage() if n.id != node]
        return sorted(others, key=lambda other: (other not in shared, other))[:PROBING_PEERS]

    def _probe(self, node: NodeId, by: NodeId | None = None) -> events.ProbeLiveness:
        record = self.nodes[node]
        return events.ProbeLiveness(node, record.incarnation, record.host, record.liveness_port, by)

    # State

    def _recall(self, now: float) -> None:
        for node in self.storage():
            is_dead = node.state is NodeState.DEAD
            self.membership.recall(node.id, node.incarnation, is_dead=is_dead, now=now)
        for node in self.nodes.values():
            if node.kind is NodeKind.META:  # it announces itself when it has started
                self.nodes[node.id] = msgspec.structs.replace(node, state=NodeState.DEAD)

    def _index(self, chain: ChainRecord) -> None:
        for member in chain.members:
            self._chains_of.setdefault(node_of(member.target), set()).add(chain.id)

    def _store_node(self, record: NodeRecord) -> None:
        self.nodes[record.id] = record
        self._dirty[keys.node(record.id)] = records.NODE.encode(record)

    def _store_chain(self, record: ChainRecord) -> None:
        self.chains[record.id] = record
        self._index(record)
        self._dirty[keys.chain(record.id)] = records.CHAIN.encode(record)

    def _commit(self) -> events.Commit:
        if self._dirty:
            self.cluster = msgspec.structs.replace(
                self.cluster, routing_version=self.cluster.routing_version + 1
            )
            self._dirty[CLUSTER_KEY] = records.CLUSTER.encode(self.cluster)
        self._serial += 1
        self._pending[self._serial] = Pending(self._routing(), self._answers)
        commit = events.Commit(self._serial, tuple(self._dirty.items()))
        self._dirty, self._answers = {}, []
        return commit

    def _routing(self) -> Routing:
        return Routing(
            cluster_id=self.cluster.cluster_id,
            epoch=self._epoch,
            version=self.cluster.routing_version,
            nodes=tuple(_node(n) for _, n in sorted(self.nodes.items()) if n.incarnation),
            chains=tuple(_chain(c, self.nodes) for _, c in sorted(self.chains.items())),
            tables=tuple(self.tables),
        )


def _offered(node: NodeRecord, target: TargetId) -> TargetRecord | None:
    return next((t for t in node.targets if t.id == target), None)


def _node(record: NodeRecord) -> Node:
    return Node(
        id=record.id,
        kind=record.kind,
        incarnation=record.incarnation,
        state=record.state,
        host=record.host,
        port=record.port,
        domain=record.domain,
        weight=record.weight,
    )


def _chain(record: ChainRecord, nodes: Mapping[NodeId, NodeRecord]) -> Chain:
    return Chain(
        id=record.id,
        version=record.version,
        members=tuple(_member(member, nodes[node_of(member.target)]) for member in record.members),
        scheme=record.scheme,
    )


def _member(member: MemberRecord, node: NodeRecord) -> Member:
    offered = _offered(node, member.target)
    return Member(
        target=member.target,
        generation=member.generation,
        state=member.state,
        host=node.host,
        port=offered.port if offered is not None else 0,
        incarnation=member.incarnation,
    )
