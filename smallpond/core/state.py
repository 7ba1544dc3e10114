"""What the scheduler remembers about hosts, workers, stages, tasks and jobs."""

from __future__ import annotations

import dataclasses
import enum
from collections import deque

from smallpond.core.events import AttemptId, HostId, JobId, StageId, StageSpec, TaskId, WorkerId


class TaskState(enum.Enum):
    WAITING = "waiting"  # for a need, or for its backoff to end
    READY = "ready"  # in the queue of its stage
    RUNNING = "running"  # at least one attempt runs
    DONE = "done"


@dataclasses.dataclass(slots=True)
class Running:
    """An attempt on a worker, and what it was granted."""

    attempt: AttemptId
    worker: WorkerId
    started: float
    cpus: int
    gpus: float
    memory_bytes: int


@dataclasses.dataclass(slots=True)
class Task:
    id: TaskId
    state: TaskState = TaskState.WAITING
    attempts: int = 0
    crashes: int = 0
    transient_failures: int = 0
    memory_growths: int = 0
    losses: int = 0
    not_before: float = 0.0
    running: list[Running] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Stage:
    """`durations` are those of successful attempts, ascending."""

    spec: StageSpec
    job: JobId
    tasks: list[Task]
    done: int = 0
    ready: deque[int] = dataclasses.field(default_factory=deque)
    readers: list[StageId] = dataclasses.field(default_factory=list)
    durations: list[float] = dataclasses.field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.done == len(self.tasks)


@dataclasses.dataclass(slots=True)
class Worker:
    id: WorkerId
    host: HostId
    running: Running | None = None
    is_stopping: bool = False


@dataclasses.dataclass(slots=True)
class Host:
    """Free resources are what is not granted to running attempts."""

    id: HostId
    cpus: int
    gpus: float
    memory_bytes: int
    workers_max: int
    free_cpus: int
    free_gpus: float
    free_memory_bytes: int
    workers: int = 0
    starting: int = 0
    start_failures: int = 0


@dataclasses.dataclass(slots=True)
class Job:
    id: JobId
    stages: tuple[StageId, ...]
