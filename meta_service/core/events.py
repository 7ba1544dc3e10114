"""What happens to the cluster machine, and what it orders. Events are past, effects are orders."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fs3.errors import Fs3Error
from fs3.ids import ChainId, ChainVersion, Incarnation, NodeId, TargetId
from fs3.model.routing import Routing
from fs3.wire.cluster_records import NodeRecord
from fs3.wire.liveness import Outcome
from meta_service.core.membership import Verdict

Token = int
"""Names a caller who waits for an answer."""


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """A target as its node last reported it."""

    id: TargetId
    failed: bool = False
    cause: str = ""
    capacity_bytes: int = 0
    used_bytes: int = 0
    free_bytes: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class SyncFinished:
    chain: ChainId
    version: ChainVersion
    target: TargetId


@dataclass(frozen=True, slots=True)
class SyncProgress:
    chain: ChainId
    target: TargetId
    done_chunks: int
    total_chunks: int


# Events


@dataclass(frozen=True, slots=True)
class NodeIdAsked:
    """A directory without a node id; `identity` is what makes a repeated question the same one.
    `wanted` is given when it is free."""

    token: Token
    identity: bytes
    wanted: NodeId | None = None


@dataclass(frozen=True, slots=True)
class NodeAnnounced:
    """A process announced itself. `is_local`: it is ours, and lives as long as we do."""

    token: Token
    record: NodeRecord
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """`applied` is the (epoch, version) of the routing that the node serves by; `targets` is empty
    when nothing changed since the heartbeat before."""

    node: NodeId
    incarnation: Incarnation
    applied: tuple[int, int] = (0, 0)
    targets: tuple[TargetStatus, ...] = ()
    finished: tuple[SyncFinished, ...] = ()
    progress: tuple[SyncProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeAccused:
    """A connection to this incarnation was refused or reset, or its heartbeat stream broke."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class LivenessProbed:
    """`by` is the node that asked the liveness port, None for this manager itself."""

    node: NodeId
    incarnation: Incarnation
    outcome: Outcome
    answered: Incarnation
    by: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Ticked:
    pass


@dataclass(frozen=True, slots=True)
class Committed:
    """The `Commit` of this serial is durable."""

    serial: int


Event = (
    NodeIdAsked
    | NodeAnnounced
    | HeartbeatReceived
    | NodeAccused
    | LivenessProbed
    | Ticked
    | Committed
)


Asking = Callable[[Token], NodeIdAsked | NodeAnnounced]
"""Builds the event of a caller who waits for an answer."""


# Effects


@dataclass(frozen=True, slots=True)
class Commit:
    """Store these pairs in one transaction fenced by the epoch, then say `Committed`. Commits are
    applied in the order of their serials."""

    serial: int
    puts: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Push to all watchers. What it says is durable."""

    routing: Routing


@dataclass(frozen=True, slots=True)
class Answer:
    token: Token
    node: NodeId | None = None
    error: Fs3Error | None = None


@dataclass(frozen=True, slots=True)
class Instruct:
    """Tell a node that it has to register, or to start over."""

    node: NodeId
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ProbeLiveness:
    """Ask a liveness port, then say `LivenessProbed`. `by` None: the manager itself."""

    node: NodeId
    incarnation: Incarnation
    host: str
    port: int
    by: NodeId | None = None


Effect = Commit | Publish | Answer | Instruct | ProbeLiveness


@dataclass(slots=True)
class Pending:
    """What waits for a commit."""

    routing: Routing
    answers: list[Answer] = field(default_factory=list)
