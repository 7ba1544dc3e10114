"""What a node tells the manager, collected from its parts until the next heartbeat.

Evidence and probe results are said once; that a copy is finished is said in every heartbeat until
the chain has moved on, since the manager may restart in between; the space of a target is said when
it changed since it was last said on this connection.
"""

from dataclasses import dataclass, field

from fs3.ids import ChainId, ChainVersion, Incarnation, NodeId, TargetId
from fs3.wire.liveness import Outcome


@dataclass(frozen=True, slots=True)
class Status:
    """Of one target."""

    target: TargetId
    failed: bool = False
    cause: str = ""
    capacity_bytes: int = 0
    used_bytes: int = 0
    free_bytes: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    chain: ChainId
    version: ChainVersion
    target: TargetId


@dataclass(frozen=True, slots=True)
class Progress:
    chain: ChainId
    target: TargetId
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Accusation:
    node: NodeId
    incarnation: Incarnation
    is_refused: bool


@dataclass(frozen=True, slots=True)
class Probed:
    node: NodeId
    incarnation: Incarnation
    outcome: Outcome
    answered: Incarnation


@dataclass(frozen=True, slots=True)
class Report:
    """One heartbeat's content."""

    applied: tuple[int, int]
    statuses: tuple[Status, ...]
    finished: tuple[Finished, ...]
    progress: tuple[Progress, ...]
    accusations: tuple[Accusation, ...]
    probes: tuple[Probed, ...]


@dataclass(slots=True)
class Reporter:
    """Not thread-safe; the shell calls it under its lock."""

    applied: tuple[int, int] = (0, 0)
    """(epoch, version) of the routing that all targets serve by."""
    _statuses: dict[TargetId, Status] = field(default_factory=dict)
    _said: dict[TargetId, Status] = field(default_factory=dict)
    _failed: dict[TargetId, str] = field(default_factory=dict)
    _finished: dict[ChainId, Finished] = field(default_factory=dict)
    _progress: dict[ChainId, Progress] = field(default_factory=dict)
    _accusations: dict[NodeId, Accusation] = field(default_factory=dict)
    _probes: list[Probed] = field(default_factory=list)

    def connected(self) -> None:
        """A new connection: the manager at its other end may know nothing."""
        self._said.clear()

    def measured(self, status: Status) -> None:
        """Space of a target; a failed one stays failed."""
        cause = self._failed.get(status.target)
        if cause is None:
            self._statuses[status.target] = status

    def failed(self, target: TargetId, cause: str) -> None:
        """The target's store had an error; it serves nothing until the node is started again."""
        self._failed[target] = cause
        self._statuses[target] = Status(target, failed=True, cause=cause)

    def chain_moved(self, chain: ChainId, version: ChainVersion) -> None:
        """What was said of older versions of the chain counts no more."""
        finished = self._finished.get(chain)
        if finished is not None and finished.version < version:
            del self._finished[chain]
        self._progress.pop(chain, None)

    def sync_finished(self, finished: Finished) -> None:
        self._finished[finished.chain] = finished

    def sync_progressed(self, progress: Progress) -> None:
        self._progress[progress.chain] = progress

    def accuse(self, accusation: Accusation) -> None:
        """At most one per node is kept: more would not say more."""
        self._accusations[accusation.node] = accusation

    def probed(self, probed: Probed) -> None:
        self._probes.append(probed)

    def take(self) -> Report:
        """Everything there is to say now."""
        changed = {t: s for t, s in self._statuses.items() if self._said.get(t) != s}
        self._said |= changed
        report = Report(
            applied=self.applied,
            statuses=tuple(changed.values()),
            finished=tuple(self._finished.values()),
            progress=tuple(self._progress.values()),
            accusations=tuple(self._accusations.values()),
            probes=tuple(self._probes),
        )
        self._accusations.clear()
        self._progress.clear()
        self._probes.clear()
        return report
