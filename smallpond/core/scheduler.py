"""The scheduler: which task runs where, when, with how much, and what happens when it fails.

A pure machine. `handle(event, now)` changes the state and returns orders; `deadline()` says when
it wants to be called with `TimePassed` if nothing else happens. It holds for every sequence of
events:

* A task's output is accepted once; of two attempts the first to succeed wins, the other is stopped.
* An attempt starts only when all it needs is done, and only within the host's free resources.
* A worker that dies costs a retry of what it ran, nothing else. A task under which workers keep
  dying fails its job instead of eating the cluster.
* An output that is found missing is made again by running its task again, and before that, by the
  same rule, whatever that needs.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

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
    HostId,
    HostJoined,
    JobCancelled,
    JobId,
    JobSubmitted,
    StageForgotten,
    StageId,
    TaskId,
    TimePassed,
    WorkerId,
    WorkerJoined,
    WorkerLost,
    WorkerStartFailed,
)
from smallpond.core.policy import Policy
from smallpond.core.state import Host, Job, Running, Stage, Task, TaskState, Worker

_NEVER = float("inf")


class Scheduler:
    """Schedules the tasks of all jobs of a session over its workers."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._hosts: dict[HostId, Host] = {}
        self._workers: dict[WorkerId, Worker] = {}
        self._stages: dict[StageId, Stage] = {}
        self._jobs: dict[JobId, Job] = {}
        self._delayed: set[TaskId] = set()
        self._now = 0.0

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; returns the orders, in the order in which to carry them out."""
        effects: list[Effect] = []
        self._now = now
        match event:
            case HostJoined():
                self._host_joined(event, effects)
            case WorkerJoined():
                self._worker_joined(event)
            case WorkerLost():
                self._worker_lost(event, effects)
            case WorkerStartFailed():
                self._worker_start_failed(event, effects)
            case JobSubmitted():
                self._job_submitted(event, effects)
            case JobCancelled():
                self._end_job(event.job, None, CANCELLED, effects)
            case StageForgotten():
                self._forget(event.stage)
            case AttemptSucceeded():
                self._attempt_succeeded(event, now, effects)
            case AttemptFailed():
                self._attempt_failed(event, now, effects)
            case TimePassed():
                pass
        self._wake_delayed(now)
        self._dispatch(now, effects)
        self._speculate(now, effects)
        self._ask_for_workers(effects)
        return effects

    def deadline(self) -> float:
        """When to call with `TimePassed`; infinity if only events matter.

        A suspicion that has come already found no room for a rival; only an event can make some.
        """
        wake = min((self._task(t).not_before for t in self._delayed), default=_NEVER)
        suspicions = (at for _, at in self._stragglers() if at > self._now)
        return min(wake, min(suspicions, default=_NEVER))

    # Hosts and workers

    def _host_joined(self, event: HostJoined, effects: list[Effect]) -> None:
        self._hosts[event.host] = Host(
            id=event.host,
            cpus=event.cpus,
            gpus=event.gpus,
            memory_bytes=event.memory_bytes,
            workers_max=event.workers_max,
            free_cpus=event.cpus,
            free_gpus=event.gpus,
            free_memory_bytes=event.memory_bytes,
            starting=event.workers_warm,
        )
        effects.extend([StartWorker(event.host)] * event.workers_warm)

    def _worker_joined(self, event: WorkerJoined) -> None:
        host = self._hosts[event.host]
        host.workers += 1
        host.start_failures = 0
        host.starting = max(0, host.starting - 1)
        self._workers[event.worker] = Worker(event.worker, event.host)

    def _worker_lost(self, event: WorkerLost, effects: list[Effect]) -> None:
        worker = self._workers.pop(event.worker, None)
        if worker is None:
            return
        self._hosts[worker.host].workers -= 1
        running = worker.running
        if running is None:
            return
        task = self._release(worker)
        if task is None or worker.is_stopping:
            return
        task.crashes += 1
        if task.crashes > self._policy.crashes_max:
            reason = f"{task.crashes} workers died running it, the last one: {event.reason}"
            self._end_job(self._stages[task.id.stage].job, running.attempt, reason, effects)
        else:
            self._retry(task)

    def _worker_start_failed(self, event: WorkerStartFailed, effects: list[Effect]) -> None:
        host = self._hosts[event.host]
        host.starting = max(0, host.starting - 1)
        host.start_failures += 1
        if host.start_failures < self._policy.start_failures_max or self._workers:
            return
        for job in list(self._jobs):
            self._end_job(job, None, f"no worker starts on {host.id}: {event.reason}", effects)

    def _ask_for_workers(self, effects: list[Effect]) -> None:
        """As many as there are tasks that could run now, within what the hosts allow."""
        wanted = sum(len(stage.ready) for stage in self._stages.values())
        wanted -= sum(host.starting for host in self._hosts.values())
        for host in self._hosts.values():
            room = host.workers_max - host.workers - host.starting
            for _ in range(min(room, host.free_cpus - host.starting, wanted)):
                host.starting += 1
                wanted -= 1
                effects.append(StartWorker(host.id))

    # Jobs and stages

    def _job_submitted(self, event: JobSubmitted, effects: list[Effect]) -> None:
        self._jobs[event.job] = Job(event.job, tuple(spec.id for spec in event.stages))
        for spec in event.stages:
            tasks = [Task(TaskId(spec.id, index)) for index in range(spec.tasks)]
            self._stages[spec.id] = Stage(spec, event.job, tasks)
            for need in spec.needs:
                self._stages[need.stage].readers.append(spec.id)
        for spec in event.stages:
            self._queue_ready(self._stages[spec.id], range(spec.tasks))
        self._finish_if_done(event.job, effects)

    def _finish_if_done(self, job_id: JobId, effects: list[Effect]) -> None:
        job = self._jobs.get(job_id)
        if job is not None and all(self._stages[stage].is_done for stage in job.stages):
            del self._jobs[job_id]
            effects.append(JobSucceeded(job_id))

    def _end_job(
        self, job_id: JobId, attempt: AttemptId | None, message: str, effects: list[Effect]
    ) -> None:
        """Give the job up: stop what runs for it and forget what is not done."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        attempts = self._task(attempt.task).attempts if attempt else 0
        for stage_id in job.stages:
            stage = self._stages[stage_id]
            stage.ready.clear()
            for task in stage.tasks:
                self._delayed.discard(task.id)
                for running in task.running:
                    self._stop(running.worker, effects)
            self._forget(stage_id)
        effects.append(JobFailed(job_id, attempt, attempts, message))

    def _forget(self, stage_id: StageId) -> None:
        stage = self._stages.pop(stage_id, None)
        if stage is None:
            return
        for need in stage.spec.needs:
            if need.stage in self._stages:
                self._stages[need.stage].readers.remove(stage_id)

    # Attempts

    def _attempt_succeeded(
        self, event: AttemptSucceeded, now: float, effects: list[Effect]
    ) -> None:
        started = self._started(event.worker, event.attempt)
        task = self._released(event.worker, event.attempt)
        if task is None or task.state is TaskState.DONE:
            return
        stage = self._stages[task.id.stage]
        for other in task.running:
            self._stop(other.worker, effects)
        task.state = TaskState.DONE
        stage.done += 1
        bisect.insort(stage.durations, now - started)
        effects.append(AcceptOutput(event.attempt))
        effects.append(ReportProgress(stage.spec.id, stage.done, len(stage.tasks)))
        self._wake_readers(stage, task.id.partition)
        self._finish_if_done(stage.job, effects)

    def _attempt_failed(self, event: AttemptFailed, now: float, effects: list[Effect]) -> None:
        task = self._released(event.worker, event.attempt)
        if task is None or task.state is TaskState.DONE:
            return
        if self._is_hopeless(task, event.kind):
            job = self._stages[task.id.stage].job
            self._end_job(job, event.attempt, event.message, effects)
            return
        if event.kind is ErrorKind.TRANSIENT:
            task.not_before = now + self._policy.backoff_s * 2 ** (task.transient_failures - 1)
        for lost in event.lost:
            self._undo(lost)
        self._retry(task)

    def _is_hopeless(self, task: Task, kind: ErrorKind) -> bool:
        """Count the failure; True when trying again is no use."""
        match kind:
            case ErrorKind.USER:
                return True
            case ErrorKind.TRANSIENT:
                task.transient_failures += 1
                return task.transient_failures > self._policy.transient_failures_max
            case ErrorKind.OUT_OF_MEMORY:
                task.memory_growths += 1
                return task.memory_growths > self._policy.memory_growths_max
            case ErrorKind.LOST_INPUT:
                task.losses += 1
                return task.losses > self._policy.losses_max

    def _undo(self, task_id: TaskId) -> None:
        """An output is gone: its task has to run again."""
        stage = self._stages.get(task_id.stage)
        if stage is None:
            return
        task = stage.tasks[task_id.partition]
        if task.state is TaskState.DONE:
            stage.done -= 1
            task.state = TaskState.WAITING
            self._queue_ready(stage, [task_id.partition])

    def _retry(self, task: Task) -> None:
        """Back into the queue, unless another attempt still runs."""
        others = [r for r in task.running if not self._is_stopping(r)]
        if others or task.state is not TaskState.RUNNING:
            return
        task.state = TaskState.WAITING
        if task.not_before > 0:
            self._delayed.add(task.id)
        self._queue_ready(self._stages[task.id.stage], [task.id.partition], first=True)

    def _wake_delayed(self, now: float) -> None:
        for task_id in [t for t in self._delayed if self._task(t).not_before <= now]:
            self._delayed.discard(task_id)
            self._task(task_id).not_before = 0.0
            self._queue_ready(self._stages[task_id.stage], [task_id.partition], first=True)

    def _queue_ready(self, stage: Stage, indexes: Iterable[int], first: bool = False) -> None:
        whole = all(
            need.same_index or self._stages[need.stage].is_done for need in stage.spec.needs
        )
        if not whole:
            return
        for index in indexes:
            task = stage.tasks[index]
            is_delayed = task.not_before > 0
            if task.state is TaskState.WAITING and not is_delayed and self._has_needs(stage, index):
                task.state = TaskState.READY
                (stage.ready.appendleft if first else stage.ready.append)(index)

    def _has_needs(self, stage: Stage, index: int) -> bool:
        for need in stage.spec.needs:
            source = self._stages[need.stage]
            if need.same_index:
                if source.tasks[index].state is not TaskState.DONE:
                    return False
            elif not source.is_done:
                return False
        return True

    def _wake_readers(self, stage: Stage, index: int) -> None:
        for reader_id in stage.readers:
            reader = self._stages[reader_id]
            if stage.is_done:
                self._queue_ready(reader, range(len(reader.tasks)))
            else:
                self._queue_ready(reader, [index] if index < len(reader.tasks) else [])

    # Placement

    def _dispatch(self, now: float, effects: list[Effect]) -> None:
        """Start ready tasks, those of earlier stages first, while there is room."""
        idle = self._idle_workers()
        ready = sum(len(stage.ready) for stage in self._stages.values())
        for stage in list(self._stages.values()):
            while stage.ready and idle:
                index = stage.ready[0]
                if not self._has_needs(stage, index):
                    stage.ready.popleft()
                    stage.tasks[index].state = TaskState.WAITING
                    continue
                worker = self._place(stage, stage.tasks[index], idle)
                if worker is None:
                    break
                stage.ready.popleft()
                idle.remove(worker)
                self._start(stage, stage.tasks[index], worker, ready, now, effects)
                ready -= 1

    def _idle_workers(self) -> list[Worker]:
        return [w for w in self._workers.values() if w.running is None and not w.is_stopping]

    def _place(self, stage: Stage, task: Task, idle: Iterable[Worker]) -> Worker | None:
        """An idle worker on the host with most free threads that has what the task asks for."""
        fitting = (w for w in idle if self._fits(stage, task, self._hosts[w.host]))
        return max(fitting, key=lambda w: (self._hosts[w.host].free_cpus, -w.id), default=None)

    def _fits(self, stage: Stage, task: Task, host: Host) -> bool:
        return (
            min(stage.spec.cpus, host.cpus) <= host.free_cpus
            and min(stage.spec.gpus, host.gpus) <= host.free_gpus
            and self._memory(stage, task, host, 1) <= host.free_memory_bytes
        )

    def _memory(self, stage: Stage, task: Task, host: Host, threads: int) -> int:
        """What the task is granted on a host: what it asks, or its share; doubled after OOM."""
        share = host.memory_bytes * max(threads, min(stage.spec.cpus, host.cpus)) // host.cpus
        wanted = stage.spec.memory_bytes or share
        return int(min(host.memory_bytes, wanted * 2**task.memory_growths))

    def _start(
        self,
        stage: Stage,
        task: Task,
        worker: Worker,
        ready: int,
        now: float,
        effects: list[Effect],
    ) -> None:
        host = self._hosts[worker.host]
        cpus = min(stage.spec.cpus, host.cpus)
        if stage.spec.elastic:
            cpus += max(0, host.free_cpus - cpus * ready) // max(1, ready)
        memory_bytes = min(self._memory(stage, task, host, cpus), host.free_memory_bytes)
        gpus = min(stage.spec.gpus, host.gpus)
        attempt = AttemptId(task.id, task.attempts)
        running = Running(attempt, worker.id, now, cpus, gpus, memory_bytes)
        task.attempts += 1
        task.state = TaskState.RUNNING
        task.running.append(running)
        worker.running = running
        host.free_cpus -= cpus
        host.free_gpus -= gpus
        host.free_memory_bytes -= memory_bytes
        effects.append(StartAttempt(worker.id, attempt, cpus, memory_bytes))

    def _release(self, worker: Worker) -> Task | None:
        """Take the attempt off its worker; None if nobody cares for its task any more."""
        running, worker.running = worker.running, None
        assert running is not None
        host = self._hosts[worker.host]
        host.free_cpus += running.cpus
        host.free_gpus += running.gpus
        host.free_memory_bytes += running.memory_bytes
        stage = self._stages.get(running.attempt.task.stage)
        if stage is None:
            return None
        task = stage.tasks[running.attempt.task.partition]
        task.running.remove(running)
        return task

    def _started(self, worker_id: WorkerId, attempt: AttemptId) -> float:
        worker = self._workers.get(worker_id)
        if worker is None or worker.running is None or worker.running.attempt != attempt:
            return _NEVER
        return worker.running.started

    def _released(self, worker_id: WorkerId, attempt: AttemptId) -> Task | None:
        """The attempt has ended by itself; None for a report about something long given up."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.running is None or worker.running.attempt != attempt:
            return None
        return self._release(worker)

    def _stop(self, worker_id: WorkerId, effects: list[Effect]) -> None:
        worker = self._workers[worker_id]
        if not worker.is_stopping:
            worker.is_stopping = True
            effects.append(StopWorker(worker_id))

    # Stragglers

    def _stragglers(self) -> Iterator[tuple[Task, float]]:
        """Tasks with one attempt, and when that attempt will have taken suspiciously long."""
        if not self._policy.speculation:
            return
        for worker in self._workers.values():
            running = worker.running
            stage = self._stages.get(running.attempt.task.stage) if running else None
            if running is None or stage is None or worker.is_stopping:
                continue
            normal = self._normal_duration(stage)
            task = stage.tasks[running.attempt.task.partition]
            if normal is not None and len(task.running) == 1:
                excess = normal * (self._policy.speculation_factor - 1)
                yield (
                    task,
                    running.started + normal + max(excess, self._policy.speculation_excess_s),
                )

    def _normal_duration(self, stage: Stage) -> float | None:
        """What nine in ten of the stage's tasks needed; None while too few have finished."""
        durations = stage.durations
        enough = max(self._policy.speculation_samples_min, len(stage.tasks) // 2)
        if not stage.spec.can_speculate or len(durations) < enough:
            return None
        return durations[len(durations) * 9 // 10]

    def _is_stopping(self, running: Running) -> bool:
        return self._workers[running.worker].is_stopping

    def _speculate(self, now: float, effects: list[Effect]) -> None:
        """Run a straggler a second time where nothing else wants the worker."""
        if any(stage.ready for stage in self._stages.values()):
            return
        for task, suspicious_at in list(self._stragglers()):
            if suspicious_at > now:
                continue
            stage = self._stages[task.id.stage]
            worker = self._place(stage, task, self._idle_workers())
            if worker is not None:
                self._start(stage, task, worker, 1, now, effects)

    def _task(self, task_id: TaskId) -> Task:
        return self._stages[task_id.stage].tasks[task_id.partition]

    def check_invariants(self) -> None:
        """What must hold between any two events; tests and the simulator call it after each."""
        for host in self._hosts.values():
            assert 0 <= host.free_cpus <= host.cpus
            assert 0 <= host.free_memory_bytes <= host.memory_bytes
            workers = [w for w in self._workers.values() if w.host == host.id]
            assert len(workers) == host.workers <= host.workers_max
            granted = [w.running for w in workers if w.running is not None]
            assert sum(r.cpus for r in granted) == host.cpus - host.free_cpus
            assert (
                sum(r.memory_bytes for r in granted) == host.memory_bytes - host.free_memory_bytes
            )
        for stage in self._stages.values():
            assert stage.done == sum(t.state is TaskState.DONE for t in stage.tasks)
            for task in stage.tasks:
                assert (task.state is TaskState.RUNNING) <= bool(task.running)
                assert (task.state is TaskState.READY) == (task.id.partition in stage.ready)
                for running in task.running:
                    assert self._workers[running.worker].running is running
        for task_id in self._delayed:
            assert self._task(task_id).state is TaskState.WAITING
