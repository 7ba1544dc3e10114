"""The scheduler core, event by event."""

from __future__ import annotations

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
    JobCancelled,
    JobId,
    JobSubmitted,
    Need,
    StageForgotten,
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

GB = 1 << 30
HOST = HostId("host")


class Bench:
    """A scheduler on one host, with invariants checked after each event."""

    def __init__(self, cpus: int = 2, workers: int = 2, policy: Policy | None = None) -> None:
        self.scheduler = Scheduler(policy or Policy())
        self.now = 0.0
        self.tell(HostJoined(HOST, cpus, 0, cpus * GB, workers))
        for worker in range(workers):
            self.tell(WorkerJoined(WorkerId(worker), HOST))

    def tell(self, event: Event) -> list[Effect]:
        effects = self.scheduler.handle(event, self.now)
        self.scheduler.check_invariants()
        return effects

    def submit(self, *stages: StageSpec) -> list[Effect]:
        return self.tell(JobSubmitted(JobId(1), stages))

    def succeed(self, start: StartAttempt) -> list[Effect]:
        return self.tell(AttemptSucceeded(start.worker, start.attempt))

    def fail(self, start: StartAttempt, kind: ErrorKind, *lost: TaskId) -> list[Effect]:
        return self.tell(AttemptFailed(start.worker, start.attempt, kind, "why", lost))


def starts(effects: list[Effect]) -> list[StartAttempt]:
    return [effect for effect in effects if isinstance(effect, StartAttempt)]


def only_start(effects: list[Effect]) -> StartAttempt:
    (start,) = starts(effects)
    return start


def has(effects: list[Effect], kind: type) -> bool:
    return any(isinstance(effect, kind) for effect in effects)


def test_tasks_start_while_there_are_workers_and_go_on_as_they_end() -> None:
    bench = Bench()
    running = starts(bench.submit(StageSpec(1, 3, ())))
    assert [start.attempt.task.partition for start in running] == [0, 1]
    effects = bench.succeed(running[0])
    assert AcceptOutput(running[0].attempt) in effects
    last = only_start(effects)
    assert last.attempt == AttemptId(TaskId(1, 2), 0)
    bench.succeed(running[1])
    assert JobSucceeded(JobId(1)) in bench.succeed(last)


def test_a_need_for_all_waits_for_all_and_one_for_the_same_index_does_not() -> None:
    for same_index, started in ((False, []), (True, [0])):
        bench = Bench()
        first, second = starts(
            bench.submit(StageSpec(1, 2, ()), StageSpec(2, 2, (Need(1, same_index),)))
        )
        after_one = starts(bench.succeed(first))
        assert [start.attempt.task for start in after_one] == [TaskId(2, i) for i in started]
        after_both = starts(bench.succeed(second))
        assert len(after_one) + len(after_both) == 2


def test_a_job_without_tasks_succeeds_at_once() -> None:
    assert JobSucceeded(JobId(1)) in Bench().submit()


def test_an_idle_host_grants_its_threads_to_an_elastic_task_alone() -> None:
    bench = Bench(cpus=8, workers=8)
    start = only_start(bench.submit(StageSpec(1, 1, (), elastic=True)))
    assert start.threads == 8
    assert start.memory_bytes == 8 * GB
    rigid = only_start(Bench(cpus=8, workers=8).submit(StageSpec(1, 1, ())))
    assert (rigid.threads, rigid.memory_bytes) == (1, GB)
    several = starts(Bench(cpus=8, workers=8).submit(StageSpec(1, 3, (), elastic=True)))
    assert sum(start.threads for start in several) == 8


def test_limits_are_respected_and_cut_to_what_the_host_has() -> None:
    bench = Bench(cpus=4, workers=4)
    assert len(starts(bench.submit(StageSpec(1, 4, (), cpus=3)))) == 1
    bench = Bench(cpus=4, workers=4)
    assert len(starts(bench.submit(StageSpec(1, 4, (), memory_bytes=2 * GB)))) == 2
    bench = Bench(cpus=4, workers=4)
    start = only_start(bench.submit(StageSpec(1, 4, (), cpus=64, memory_bytes=1 << 60)))
    assert (start.threads, start.memory_bytes) == (4, 4 * GB)


def test_workers_are_asked_for_as_there_is_work() -> None:
    scheduler = Scheduler(Policy())
    warm = scheduler.handle(HostJoined(HOST, 4, 0, GB, 4, workers_warm=1), 0)
    assert warm == [StartWorker(HOST)]
    effects = scheduler.handle(JobSubmitted(JobId(1), (StageSpec(1, 3, ()),)), 0)
    assert effects == [StartWorker(HOST)] * 2
    assert scheduler.handle(TimePassed(), 0) == []


def test_jobs_end_when_no_worker_starts() -> None:
    scheduler = Scheduler(Policy(start_failures_max=2))
    scheduler.handle(HostJoined(HOST, 1, 0, GB, 1), 0)
    scheduler.handle(JobSubmitted(JobId(1), (StageSpec(1, 1, ()),)), 0)
    again = scheduler.handle(WorkerStartFailed(HOST, "no python"), 0)
    assert again == [StartWorker(HOST)]
    ended = scheduler.handle(WorkerStartFailed(HOST, "no python"), 0)
    failed = [effect for effect in ended if isinstance(effect, JobFailed)]
    assert failed[0].message == "no worker starts on host: no python"


def test_a_lost_worker_costs_a_retry_elsewhere_and_is_replaced() -> None:
    bench = Bench()
    start = only_start(bench.submit(StageSpec(1, 1, ())))
    retry = only_start(bench.tell(WorkerLost(start.worker, "killed")))
    assert retry.attempt == AttemptId(TaskId(1, 0), 1)
    assert retry.worker != start.worker
    assert JobSucceeded(JobId(1)) in bench.succeed(retry)
    assert bench.tell(WorkerLost(start.worker, "again")) == []


def test_a_task_under_which_workers_keep_dying_fails_its_job() -> None:
    bench = Bench(workers=1, policy=Policy(crashes_max=2))
    effects = bench.submit(StageSpec(1, 1, ()))
    for worker in range(1, 3):
        bench.tell(WorkerLost(only_start(effects).worker, "killed"))
        effects = bench.tell(WorkerJoined(WorkerId(worker), HOST))
    ended = bench.tell(WorkerLost(only_start(effects).worker, "killed"))
    (failed,) = (effect for effect in ended if isinstance(effect, JobFailed))
    assert failed.attempts == 3
    assert "3 workers died running it, the last one: killed" in failed.message


def test_a_user_error_ends_the_job_and_stops_its_other_tasks() -> None:
    bench = Bench()
    first, second = starts(bench.submit(StageSpec(1, 5, ())))
    effects = bench.fail(first, ErrorKind.USER)
    assert StopWorker(second.worker) in effects
    assert has(effects, JobFailed)
    assert bench.succeed(second) == []
    assert bench.tell(WorkerLost(second.worker, "stopped")) == []


def test_a_transient_error_is_retried_after_a_pause_that_doubles() -> None:
    bench = Bench(policy=Policy(backoff_s=1.0, transient_failures_max=2))
    start = only_start(bench.submit(StageSpec(1, 1, ())))
    for pause in (1.0, 2.0):
        assert starts(bench.fail(start, ErrorKind.TRANSIENT)) == []
        assert bench.scheduler.deadline() == bench.now + pause
        bench.now += pause
        start = only_start(bench.tell(TimePassed()))
    assert has(bench.fail(start, ErrorKind.TRANSIENT), JobFailed)


def test_a_task_out_of_memory_gets_twice_as_much_each_time() -> None:
    bench = Bench(cpus=4, workers=4)
    start = only_start(bench.submit(StageSpec(1, 1, ())))
    granted = [start.memory_bytes]
    while True:
        effects = bench.fail(start, ErrorKind.OUT_OF_MEMORY)
        if has(effects, JobFailed):
            break
        start = only_start(effects)
        granted.append(start.memory_bytes)
    assert granted == [GB, 2 * GB, 4 * GB, 4 * GB, 4 * GB]


def test_a_lost_output_is_made_again_before_its_reader_runs() -> None:
    bench = Bench()
    first, second = starts(bench.submit(StageSpec(1, 2, ()), StageSpec(2, 1, (Need(1, False),))))
    bench.succeed(first)
    reader = only_start(bench.succeed(second))
    again = only_start(bench.fail(reader, ErrorKind.LOST_INPUT, TaskId(1, 1)))
    assert again.attempt == AttemptId(TaskId(1, 1), 1)
    reader = only_start(bench.succeed(again))
    assert reader.attempt == AttemptId(TaskId(2, 0), 1)
    assert has(bench.succeed(reader), JobSucceeded)


def test_losses_are_chased_back_through_the_stages() -> None:
    bench = Bench()
    stages = (
        StageSpec(1, 1, ()),
        StageSpec(2, 1, (Need(1, True),)),
        StageSpec(3, 1, (Need(2, True),)),
    )
    one = only_start(bench.submit(*stages))
    two = only_start(bench.succeed(one))
    three = only_start(bench.succeed(two))
    two = only_start(bench.fail(three, ErrorKind.LOST_INPUT, TaskId(2, 0)))
    one = only_start(bench.fail(two, ErrorKind.LOST_INPUT, TaskId(1, 0)))
    two = only_start(bench.succeed(one))
    three = only_start(bench.succeed(two))
    assert has(bench.succeed(three), JobSucceeded)


def test_a_straggler_gets_a_rival_and_the_first_to_finish_wins() -> None:
    bench = Bench(policy=Policy(speculation_samples_min=3, speculation_excess_s=4.0))
    first, slow = starts(bench.submit(StageSpec(1, 4, ())))
    for _ in range(3):
        bench.now += 1
        effects = bench.succeed(first)
        first = only_start(effects) if starts(effects) else first
    assert bench.scheduler.deadline() == 5.0  # started at 0, 1 s is normal, 4 s are suspicious
    bench.now = 5.0
    rival = only_start(bench.tell(TimePassed()))
    assert rival.attempt.task == slow.attempt.task
    assert rival.worker != slow.worker
    effects = bench.succeed(rival)
    assert AcceptOutput(rival.attempt) in effects
    assert StopWorker(slow.worker) in effects
    assert has(effects, JobSucceeded)
    assert not has(bench.succeed(slow), AcceptOutput)


def test_a_straggler_whose_rival_dies_is_still_awaited() -> None:
    bench = Bench(policy=Policy(speculation_samples_min=3, speculation_excess_s=4.0))
    first, slow = starts(bench.submit(StageSpec(1, 4, ())))
    for _ in range(3):
        bench.now += 1
        effects = bench.succeed(first)
        first = only_start(effects) if starts(effects) else first
    bench.now = 10
    rival = only_start(bench.tell(TimePassed()))
    assert starts(bench.tell(WorkerLost(rival.worker, "killed"))) == []
    assert has(bench.succeed(slow), JobSucceeded)


def test_stages_that_must_not_run_twice_at_a_time_get_no_rival() -> None:
    policy = Policy(speculation_samples_min=1, speculation_excess_s=0.0)
    bench = Bench(policy=policy)
    first, _ = starts(bench.submit(StageSpec(1, 2, (), can_speculate=False)))
    bench.now = 1
    bench.succeed(first)
    assert bench.scheduler.deadline() == float("inf")


def test_cancelling_stops_everything_of_the_job() -> None:
    bench = Bench()
    first, second = starts(bench.submit(StageSpec(1, 5, ())))
    effects = bench.tell(JobCancelled(JobId(1)))
    assert {StopWorker(first.worker), StopWorker(second.worker)} <= set(effects)
    assert JobFailed(JobId(1), None, 0, "cancelled") in effects


def test_later_jobs_read_stages_of_earlier_ones_until_they_are_forgotten() -> None:
    bench = Bench()
    bench.succeed(only_start(bench.submit(StageSpec(1, 1, ()))))
    second = bench.tell(JobSubmitted(JobId(2), (StageSpec(2, 1, (Need(1, False),)),)))
    assert has(bench.succeed(only_start(second)), JobSucceeded)
    bench.tell(StageForgotten(2))
    bench.tell(StageForgotten(1))
    with pytest.raises(KeyError):
        bench.tell(JobSubmitted(JobId(3), (StageSpec(3, 1, (Need(1, False),)),)))
