"""What the scheduler orders."""

from __future__ import annotations

import dataclasses

from smallpond.core.events import AttemptId, HostId, JobId, StageId, WorkerId

CANCELLED = "cancelled"  # the message of `JobFailed` when somebody asked for it


@dataclasses.dataclass(frozen=True, slots=True)
class StartWorker:
    """Answered by `WorkerJoined`, or by `WorkerStartFailed` when there will be none."""

    host: HostId


@dataclasses.dataclass(frozen=True, slots=True)
class StopWorker:
    """End the worker, whatever it runs; answered by `WorkerLost`."""

    worker: WorkerId


@dataclasses.dataclass(frozen=True, slots=True)
class StartAttempt:
    worker: WorkerId
    attempt: AttemptId
    threads: int
    memory_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class AcceptOutput:
    """This attempt's output is the task's, from now on; those of other attempts are not."""

    attempt: AttemptId


@dataclasses.dataclass(frozen=True, slots=True)
class ReportProgress:
    stage: StageId
    done: int
    tasks: int


@dataclasses.dataclass(frozen=True, slots=True)
class JobSucceeded:
    job: JobId


@dataclasses.dataclass(frozen=True, slots=True)
class JobFailed:
    """The job has ended without result; `attempt` is the one that could not be helped.

    Attributes:
        attempt: None if the job was cancelled or no worker can be had.
        attempts: how many attempts the task has had.
    """

    job: JobId
    attempt: AttemptId | None
    attempts: int
    message: str


Effect = (
    StartWorker
    | StopWorker
    | StartAttempt
    | AcceptOutput
    | ReportProgress
    | JobSucceeded
    | JobFailed
)
