"""Routing: who serves what. Made by the cluster manager, pushed to every node and client."""

from enum import IntEnum

import msgspec

from fs3.ids import ChainId, ChainVersion, ClusterId, Incarnation, NodeId, TargetId


class NodeKind(IntEnum):
    META = 1
    STORAGE = 2


class NodeState(IntEnum):
    ALIVE = 1
    DEAD = 2


class TargetState(IntEnum):
    """State of a target in its chain (design: cluster manager)."""

    SERVING = 1
    SYNCING = 2
    WAITING = 3
    LAST = 4
    OFFLINE = 5


class Node(msgspec.Struct, frozen=True, array_like=True):
    id: NodeId
    kind: NodeKind
    incarnation: Incarnation
    state: NodeState
    host: str
    port: int
    """fs3rpc port of a meta server; the first shard's port of a storage node."""
    domain: str = ""
    """Failure domain: nodes with the same text fail together."""
    weight: float = 1.0


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A target's place in a chain, with the endpoint of the shard that owns it.

    Attributes:
        incarnation: of the node that a SERVING or SYNCING state was given to. A later incarnation
            of the node, which finds itself in a routing of before, does not take the state for its
            own.
    """

    target: TargetId
    generation: int
    state: TargetState
    host: str
    port: int
    incarnation: Incarnation = Incarnation(0)


class Chain(msgspec.Struct, frozen=True, array_like=True):
    """`members` in chain order: the SERVING ones first (head to tail), then the others."""

    id: ChainId
    version: ChainVersion
    members: tuple[Member, ...]
    scheme: str = "replicated"

    @property
    def serving(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.state is TargetState.SERVING)


class ChainTable(msgspec.Struct, frozen=True, array_like=True):
    """An immutable, ordered list of chains; layouts name (id, version)."""

    id: int
    version: int
    chains: tuple[ChainId, ...]


class Routing(msgspec.Struct, frozen=True, array_like=True):
    """The whole routing state at one version.

    Attributes:
        epoch: of the primary manager that made it; older epochs are refused.
        version: grows with every change under one epoch or later.
    """

    cluster_id: ClusterId
    epoch: int
    version: int
    nodes: tuple[Node, ...] = ()
    chains: tuple[Chain, ...] = ()
    tables: tuple[ChainTable, ...] = ()

    def chain(self, chain: ChainId) -> Chain | None:
        return next((c for c in self.chains if c.id == chain), None)

    def table(self, table: int, version: int) -> ChainTable | None:
        return next((t for t in self.tables if (t.id, t.version) == (table, version)), None)

    def newest_table(self) -> ChainTable | None:
        return max(self.tables, key=lambda t: (t.id, t.version), default=None)
