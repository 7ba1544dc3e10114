"""The scheduler's settings: how often to try again, and when to suspect a straggler."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """Limits of a session's scheduler.

    Attributes:
        crashes_max: workers that may die under one task before the task is held responsible.
        transient_failures_max: input or output errors of one task.
        memory_growths_max: how often a task that ran out of memory gets twice as much.
        losses_max: how often one task may find its input gone.
        start_failures_max: workers in a row that fail to start before jobs are given up.
        backoff_s: wait after the first transient failure; doubled after each.
        speculation: start a second attempt beside a straggler.
        speculation_samples_min: finished tasks of a stage that tell what is normal.
        speculation_factor: a straggler takes that many times the normal duration ...
        speculation_excess_s: ... and this much longer at least.
    """

    crashes_max: int = 5
    transient_failures_max: int = 5
    memory_growths_max: int = 4
    losses_max: int = 5
    start_failures_max: int = 10
    backoff_s: float = 0.2
    speculation: bool = True
    speculation_samples_min: int = 5
    speculation_factor: float = 3.0
    speculation_excess_s: float = 5.0
