"""The scheduler core under random deaths, stragglers, losses and errors, on virtual time.

A seed decides the plan, the hosts and every fault. The checkers: invariants after each event, an
output is accepted once until it is lost, no attempt starts before its needs are met or beyond its
host's means, and every job ends: with success when its faults can be survived.
"""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any

import pytest

from smallpond.core.effects import (
    AcceptOutput,
    Effect,
    JobFailed,
    JobSucceeded,
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
    JobId,
    JobSubmitted,
    Need,
    StageSpec,
    TaskId,
    TimePassed,
    WorkerId,
    WorkerJoined,
    WorkerLost,
    WorkerStartFailed,
)
from smallpond.core.policy import Policy
from smallpond.core.scheduler import Scheduler

_GB = 1 << 30
_STEPS_MAX = 4_000


class World:
    """Hosts, workers and files as a seed wants them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 0.0
        self.timeline: list[tuple[float, int, Event]] = []
        self.order = itertools.count()
        self.scheduler = Scheduler(
            Policy(crashes_max=1000, transient_failures_max=1000, losses_max=1000)
        )
        self.death = self.dice.choice([0.0, 0.05, 0.3])
        self.loss = self.dice.choice([0.0, 0.05])
        self.error = self.dice.choice([0.0, 0.1])
        self.straggle = self.dice.choice([0.0, 0.1])
        self.workers: dict[WorkerId, HostId] = {}
        self.running: dict[WorkerId, AttemptId] = {}
        self.worker_ids = itertools.count()
        self.accepted: dict[TaskId, int] = {}
        self.present: set[TaskId] = set()
        self.ended: list[Effect] = []
        self.stages: dict[int, StageSpec] = {}

    def run(self) -> None:
        for number in range(self.dice.randint(1, 3)):
            cpus = self.dice.randint(1, 8)
            self.tell(HostJoined(HostId(f"host {number}"), cpus, 0, cpus * _GB, cpus))
        jobs = self.dice.randint(1, 3)
        for number in range(jobs):
            self.tell(JobSubmitted(JobId(number), self.plan(number)))
        for _ in range(_STEPS_MAX):
            if len(self.ended) == jobs:
                return
            self.step()
        raise AssertionError("a job does not end")

    def plan(self, job: int) -> tuple[StageSpec, ...]:
        """A few stages, each reading some of the earlier ones."""
        stages: list[StageSpec] = []
        for number in range(self.dice.randint(1, 5)):
            tasks = self.dice.randint(1, 12)
            sources = self.dice.sample(stages, min(len(stages), self.dice.randint(0, 2)))
            needs = tuple(
                Need(source.id, source.tasks == tasks and self.dice.random() < 0.7)
                for source in sources
            )
            spec = StageSpec(
                id=job * 100 + number,
                tasks=tasks,
                needs=needs,
                cpus=self.dice.choice([1, 1, 1, 2, 100]),
                memory_bytes=self.dice.choice([None, None, _GB, 100 * _GB]),
                elastic=self.dice.random() < 0.5,
                can_speculate=self.dice.random() < 0.9,
            )
            stages.append(spec)
            self.stages[spec.id] = spec
        return tuple(stages)

    def step(self) -> None:
        deadline = self.scheduler.deadline()
        if self.timeline and self.timeline[0][0] <= deadline:
            self.now, _, event = heapq.heappop(self.timeline)
            self.happen(event)
        else:
            assert deadline < float("inf"), "nothing will ever happen again"
            self.now = max(self.now, deadline)
            self.tell(TimePassed())

    def happen(self, event: Event) -> None:
        """An event is real only if its worker still lives and runs what it is about."""
        if isinstance(event, AttemptSucceeded | AttemptFailed):
            if self.running.get(event.worker) != event.attempt:
                return
            del self.running[event.worker]
            if isinstance(event, AttemptSucceeded):
                missing = self.missing(event.attempt)
                if missing:
                    event = AttemptFailed(
                        event.worker, event.attempt, ErrorKind.LOST_INPUT, "gone", missing
                    )
        elif isinstance(event, WorkerLost):
            if event.worker not in self.workers:
                return
            del self.workers[event.worker]
            self.running.pop(event.worker, None)
        elif isinstance(event, WorkerJoined):
            self.workers[event.worker] = event.host
        self.tell(event)

    def missing(self, attempt: AttemptId) -> tuple[TaskId, ...]:
        """Inputs of the attempt whose files are gone."""
        needed = []
        for need in self.stages[attempt.task.stage].needs:
            source = self.stages[need.stage]
            indexes = [attempt.task.partition] if need.same_index else range(source.tasks)
            needed += [TaskId(need.stage, index) for index in indexes]
        return tuple(task for task in needed if task not in self.present)

    def tell(self, event: Event) -> None:
        effects = self.scheduler.handle(event, self.now)
        self.scheduler.check_invariants()
        for effect in effects:
            self.obey(effect)

    def later(self, seconds: float, event: Event) -> None:
        heapq.heappush(self.timeline, (self.now + seconds, next(self.order), event))

    def obey(self, effect: Effect) -> None:
        match effect:
            case StartWorker():
                self.start_worker(effect)
            case StopWorker():
                self.later(self.dice.random() * 0.1, WorkerLost(effect.worker, "stopped"))
            case StartAttempt():
                self.start_attempt(effect)
            case AcceptOutput():
                task = effect.attempt.task
                assert task not in self.present, "accepted twice"
                self.present.add(task)
                if self.dice.random() < self.loss:
                    self.present.discard(task)
            case JobSucceeded() | JobFailed():
                self.ended.append(effect)

    def start_worker(self, order: StartWorker) -> None:
        delay = self.dice.random()
        if self.dice.random() < 0.1:
            self.later(delay, WorkerStartFailed(order.host, "bad luck"))
            return
        worker = WorkerId(next(self.worker_ids))
        self.later(delay, WorkerJoined(worker, order.host))

    def start_attempt(self, order: StartAttempt) -> None:
        assert order.worker in self.workers
        assert order.worker not in self.running
        self.running[order.worker] = order.attempt
        takes = self.dice.random() + 0.5
        if self.dice.random() < self.straggle:
            takes *= 100
        if self.dice.random() < self.death:
            self.later(takes * self.dice.random(), WorkerLost(order.worker, "killed"))
        kind: Any = None
        if self.dice.random() < self.error:
            kind = ErrorKind.TRANSIENT
            self.later(takes, AttemptFailed(order.worker, order.attempt, kind, "flaky"))
        else:
            self.later(takes, AttemptSucceeded(order.worker, order.attempt))


@pytest.mark.parametrize("block", range(10))
def test_every_job_ends_well_whatever_dies(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        world = World(seed)
        world.run()
        failed = [effect for effect in world.ended if isinstance(effect, JobFailed)]
        # The one thing that may end a job here: no worker at all, three bad starts in a row.
        assert all("no worker starts" in effect.message for effect in failed), (seed, failed)


def test_the_simulation_has_something_to_show() -> None:
    """Across seeds there are deaths, losses, rivals and retries, or it would prove nothing."""
    seen = {"death": 0, "loss": 0, "rival": 0, "retry": 0}
    for seed in range(60):
        world = World(seed)
        original = world.scheduler.handle

        def spy(event: Event, now: float, original: Any = original) -> list[Effect]:
            effects: list[Effect] = original(event, now)
            seen["death"] += isinstance(event, WorkerLost) and event.reason == "killed"
            seen["loss"] += isinstance(event, AttemptFailed) and bool(event.lost)
            attempts = [e for e in effects if isinstance(e, StartAttempt)]
            seen["rival"] += isinstance(event, TimePassed) and bool(attempts)
            seen["retry"] += any(e.attempt.number for e in attempts)
            return effects

        world.scheduler.handle = spy  # type: ignore[method-assign]
        world.run()
    assert all(count > 20 for count in seen.values()), seen


def test_a_planted_bug_is_found() -> None:
    """A scheduler that forgets that an output is gone sends its readers in vain for ever."""

    class Careless(Scheduler):
        def _undo(self, task_id: TaskId) -> None:
            del task_id

    def run_all() -> None:
        for seed in range(200):
            world = World(seed)
            world.scheduler.__class__ = Careless
            world.run()

    with pytest.raises(AssertionError, match="does not end"):
        run_all()


def test_a_seed_is_a_run() -> None:
    def history(seed: int) -> list[str]:
        world = World(seed)
        lines: list[str] = []
        original = world.obey

        def spy(effect: Effect) -> None:
            lines.append(repr(effect))
            original(effect)

        world.obey = spy  # type: ignore[method-assign]
        world.run()
        return lines

    assert history(7) == history(7)
    assert history(7) != history(8)
