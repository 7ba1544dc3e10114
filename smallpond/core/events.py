"""What the world tells the scheduler."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple, NewType

HostId = NewType("HostId", str)
WorkerId = NewType("WorkerId", int)
JobId = NewType("JobId", int)
StageId = int


class TaskId(NamedTuple):
    """One partition of one stage."""

    stage: StageId
    partition: int


class AttemptId(NamedTuple):
    """One try at a task; numbers start at 0 and never repeat for a task."""

    task: TaskId
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """A stage must be done before: all of it, or just the task of the same index."""

    stage: StageId
    same_index: bool


@dataclasses.dataclass(frozen=True, slots=True)
class StageSpec:
    """What the scheduler has to know about a stage.

    Attributes:
        cpus, gpus, memory_bytes: per task; more than a host has is cut to what it has. None is the
            task's fair share of the host.
        elastic: tasks can use more threads than `cpus`.
        can_speculate: a second attempt beside a running one does no harm.
    """

    id: StageId
    tasks: int
    needs: tuple[Need, ...]
    cpus: int = 1
    gpus: float = 0
    memory_bytes: int | None = None
    elastic: bool = False
    can_speculate: bool = True


class ErrorKind(enum.Enum):
    """Why an attempt failed, by what helps."""

    USER = "user"  # the same code on the same rows fails again
    TRANSIENT = "transient"  # input or output failed; later may work
    OUT_OF_MEMORY = "out_of_memory"  # more memory may work
    LOST_INPUT = "lost_input"  # what an earlier task stored is gone


@dataclasses.dataclass(frozen=True, slots=True)
class HostJoined:
    """A machine with what tasks may use of it.

    Attributes:
        workers_max: limit of workers; each runs one task at a time.
        workers_warm: workers to start at once, before there is anything to do.
    """

    host: HostId
    cpus: int
    gpus: float
    memory_bytes: int
    workers_max: int
    workers_warm: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerJoined:
    worker: WorkerId
    host: HostId


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker is certainly gone: it runs nothing any more."""

    worker: WorkerId
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerStartFailed:
    """No worker came of a `StartWorker`."""

    host: HostId
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class JobSubmitted:
    job: JobId
    stages: tuple[StageSpec, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class JobCancelled:
    job: JobId


@dataclasses.dataclass(frozen=True, slots=True)
class StageForgotten:
    """Nobody will read the stage again; its tasks need not be remembered."""

    stage: StageId


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptSucceeded:
    worker: WorkerId
    attempt: AttemptId


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptFailed:
    worker: WorkerId
    attempt: AttemptId
    kind: ErrorKind
    message: str
    lost: tuple[TaskId, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing happened, but `deadline()` has come."""


Event = (
    HostJoined
    | WorkerJoined
    | WorkerLost
    | WorkerStartFailed
    | JobSubmitted
    | JobCancelled
    | StageForgotten
    | AttemptSucceeded
    | AttemptFailed
    | TimePassed
)
