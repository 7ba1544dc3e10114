"""The driver's loop: one thread that feeds the scheduler core and carries out its orders.

Everything that happens (a job from the user's thread, a notice from a launcher) goes through one
inbox; so the scheduler, the outputs and the launcher are touched by this thread alone. Threads
that wait for a job wait on its `JobHandle`.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smallpond.core.effects import (
    CANCELLED,
    AcceptOutput,
    Effect,
    JobFailed,
    JobSucceeded,
    ReportProgress,
    StartAttempt,
    StartWorker,
    StopWorker,
)
from smallpond.core.events import (
    AttemptFailed,
    AttemptId,
    AttemptSucceeded,
    ErrorKind,
    Event,
    JobCancelled,
    JobId,
    JobSubmitted,
    Need,
    StageForgotten,
    StageId,
    StageSpec,
    TimePassed,
    WorkerId,
    WorkerLost,
)
from smallpond.core.scheduler import Scheduler
from smallpond.errors import JobCancelled as JobCancelledError
from smallpond.errors import SmallpondError
from smallpond.execution.messages import (
    Failed,
    Finished,
    ForgetStage,
    LearnStage,
    Metrics,
    RunAttempt,
)
from smallpond.io.job_directory import JobDirectory
from smallpond.launch.launcher import FromWorker, Launcher, Notice

if TYPE_CHECKING:  # the driver starts workers before it has loaded Arrow
    from smallpond.operators.step import TaskOutput
    from smallpond.plan.stage import ResolvedInput, Stage

_INLINE_BYTES_MAX = 64 << 10
_INLINE_TASKS_MAX = 1024  # beyond it the driver would hold too much


@dataclasses.dataclass(frozen=True)
class AttemptRecord:
    """One line of the job's history."""

    attempt: AttemptId
    label: str
    worker: WorkerId
    started: float
    ended: float
    outcome: str
    rows: int
    size_bytes: int
    metrics: Metrics | None


class JobHandle:
    """A job as seen by the thread that waits for it."""

    def __init__(self, job: JobId, stages: Sequence[Stage]) -> None:
        self.id = job
        self.stages = tuple(stages)
        self.done = {stage.id: 0 for stage in stages}
        self.error: BaseException | None = None
        self.finished = threading.Event()


@dataclasses.dataclass(frozen=True)
class _Submit:
    handle: JobHandle
    pipelines: dict[StageId, bytes]


@dataclasses.dataclass(frozen=True)
class _Forget:
    stages: tuple[StageId, ...]


@dataclasses.dataclass(frozen=True)
class _Close:
    pass


class Runner:
    """Runs jobs on the workers of a launcher."""

    def __init__(self, scheduler: Scheduler, launcher: Launcher, directory: JobDirectory) -> None:
        self.outputs: dict[StageId, list[TaskOutput | None]] = {}
        self.history: list[AttemptRecord] = []
        self._scheduler = scheduler
        self._launcher = launcher
        self._directory = directory
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stages: dict[StageId, Stage] = {}
        self._pipelines: dict[StageId, bytes] = {}
        self._taught: dict[WorkerId, set[StageId]] = {}
        self._finished: dict[AttemptId, Finished] = {}
        self._failed: dict[AttemptId, Failed] = {}
        self._started: dict[AttemptId, tuple[StartAttempt, str, float]] = {}
        self._inputs: dict[AttemptId, tuple[ResolvedInput, ...]] = {}
        self._handles: dict[JobId, JobHandle] = {}
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="smallpond-runner", daemon=True)
        self._thread.start()

    def submit(self, handle: JobHandle, pipelines: dict[StageId, bytes]) -> None:
        """Start a job; its stages may read those of earlier jobs that were not forgotten."""
        if self._broken is not None:
            raise SmallpondError("the session has ended by an internal error") from self._broken
        self._inbox.put(_Submit(handle, pipelines))

    def cancel(self, handle: JobHandle) -> None:
        self._inbox.put(JobCancelled(handle.id))

    def forget(self, stages: Sequence[StageId]) -> None:
        """Drop what is remembered about stages; their files are the caller's to remove."""
        self._inbox.put(_Forget(tuple(stages)))

    def close(self) -> None:
        """Fail what runs, end the workers, end the thread."""
        self._inbox.put(_Close())
        self._thread.join()

    def _loop(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            self._broken = error
        self._launcher.close()
        for handle in self._handles.values():
            handle.error = self._broken or JobCancelledError("the session was shut down")
            handle.finished.set()

    def _serve(self) -> None:
        self._launcher.open(self._inbox.put)
        while not isinstance(message := self._next(), _Close):
            for event in self._events(message):
                for effect in self._scheduler.handle(event, time.monotonic()):
                    self._carry_out(effect)

    def _next(self) -> Any:
        deadline = self._scheduler.deadline()
        if deadline == float("inf"):
            return self._inbox.get()
        try:
            return self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return TimePassed()

    def _events(self, message: Event | Notice | _Submit | _Forget) -> list[Event]:
        """What a message means for the scheduler."""
        match message:
            case _Submit():
                return [self._admit(message)]
            case _Forget():
                return self._drop(message.stages)
            case FromWorker(worker, Finished() as finished):
                if finished.attempt.task.stage in self._stages:
                    self._finished[finished.attempt] = finished
                self._record(finished.attempt, "ok", finished)
                return [AttemptSucceeded(worker, finished.attempt)]
            case FromWorker(worker, Failed() as failed):
                self._failed[failed.attempt] = failed
                self._record(failed.attempt, failed.error, None)
                return [
                    AttemptFailed(worker, failed.attempt, failed.kind, failed.error, failed.lost)
                ]
            case FromWorker():
                raise AssertionError(f"unknown message {message}")
            case WorkerLost():
                self._taught.pop(message.worker, None)
                for attempt, (order, _, _) in list(self._started.items()):
                    if order.worker == message.worker:
                        self._record(attempt, message.reason, None)
                return [message]
            case _:
                return [message]

    def _admit(self, submit: _Submit) -> JobSubmitted:
        handle = submit.handle
        self._handles[handle.id] = handle
        self._pipelines |= submit.pipelines
        for stage in handle.stages:
            self._stages[stage.id] = stage
            self.outputs[stage.id] = [None] * stage.partitions
        return JobSubmitted(handle.id, tuple(_spec(stage) for stage in handle.stages))

    def _drop(self, stages: tuple[StageId, ...]) -> list[Event]:
        for stage in stages:
            self._stages.pop(stage, None)
            self._pipelines.pop(stage, None)
            self.outputs.pop(stage, None)
            for worker, taught in self._taught.items():
                if stage in taught:
                    taught.remove(stage)
                    self._launcher.send(worker, ForgetStage(stage))
        return [StageForgotten(stage) for stage in stages]

    def _record(self, attempt: AttemptId, outcome: str, finished: Finished | None) -> None:
        order, label, started = self._started.pop(attempt)
        self.history.append(
            AttemptRecord(
                attempt=attempt,
                label=label,
                worker=order.worker,
                started=started,
                ended=time.monotonic(),
                outcome=outcome,
                rows=finished.output.rows if finished else 0,
                size_bytes=finished.output.size_bytes if finished else 0,
                metrics=finished.metrics if finished else None,
            )
        )

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case StartWorker():
                self._launcher.start(effect.host)
            case StopWorker():
                self._launcher.stop(effect.worker)
            case StartAttempt():
                self._start(effect)
            case AcceptOutput():
                task = effect.attempt.task
                output = self._finished.pop(effect.attempt).output
                self.outputs[task.stage][task.partition] = output
                self._inputs.pop(effect.attempt, None)
            case ReportProgress():
                self._report(effect)
            case JobSucceeded():
                self._end(effect.job, None)
            case JobFailed():
                self._end(effect.job, self._explain(effect))

    def _start(self, order: StartAttempt) -> None:
        task = order.attempt.task
        stage = self._stages[task.stage]
        taught = self._taught.setdefault(order.worker, set())
        if task.stage not in taught:
            taught.add(task.stage)
            self._launcher.send(order.worker, LearnStage(task.stage, self._pipelines[task.stage]))
        self._started[order.attempt] = (order, stage.label, time.monotonic())
        try:
            inputs = tuple(s.resolve(task.partition, self.outputs) for s in stage.inputs)
        except Exception as error:
            from smallpond.execution import failure

            failed = failure.report(order.attempt, None, error)
            self._inbox.put(FromWorker(order.worker, failed))
            return
        self._inputs[order.attempt] = inputs
        number = order.attempt.number
        path = self._directory.attempt_path(task.stage, task.partition, number)
        few = stage.partitions <= _INLINE_TASKS_MAX
        self._launcher.send(
            order.worker,
            RunAttempt(
                attempt=order.attempt,
                inputs=inputs,
                threads=order.threads,
                memory_bytes=order.memory_bytes,
                output_path=path,
                inline_bytes_max=_INLINE_BYTES_MAX if few else 0,
            ),
        )

    def _report(self, progress: ReportProgress) -> None:
        for handle in self._handles.values():
            if progress.stage in handle.done:
                handle.done[progress.stage] = progress.done

    def _explain(self, effect: JobFailed) -> BaseException:
        from smallpond.execution import failure

        if effect.attempt is None:
            kind = JobCancelledError if effect.message == CANCELLED else SmallpondError
            return kind(effect.message)
        stage = self._stages[effect.attempt.task.stage]
        inputs = self._inputs.get(effect.attempt, ())
        failed = self._failed.get(effect.attempt)
        if failed is None:
            failed = Failed(
                effect.attempt, ErrorKind.USER, stage.label, "", effect.message, "", b""
            )
        return failure.to_exception(failed, stage, inputs, effect.attempts)

    def _end(self, job: JobId, error: BaseException | None) -> None:
        handle = self._handles.pop(job)
        handle.error = error
        for stage in handle.stages:
            for kept in (self._inputs, self._failed, self._finished):
                for attempt in [a for a in kept if a.task.stage == stage.id]:
                    del kept[attempt]
        handle.finished.set()


def _spec(stage: Stage) -> StageSpec:
    needs = [
        Need(source, selection.same_partition)
        for selection in stage.inputs
        for source in selection.stages
    ]
    return StageSpec(
        id=stage.id,
        tasks=stage.partitions,
        needs=tuple(dict.fromkeys(needs)),
        cpus=stage.resources.cpus,
        gpus=stage.resources.gpus,
        memory_bytes=stage.resources.memory_bytes,
        elastic=stage.elastic,
    )
