"""Where the GPU did nothing, and which kernels stand at both ends of each gap."""

from dataclasses import dataclass
from typing import Final

from trainer_io.moe.profile.kineto import GpuEvent, Trace

NANOSECONDS_PER_MS: Final = 1e6
GAPS_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Gap:
    """Idle time between two events of one device, all streams together.

    Attributes:
        begin_ms: after the first GPU event of the trace.
        before, after: the event that ended last before the gap, and the one that ends the gap.
    """

    begin_ms: float
    length_ms: float
    before: str
    after: str


def longest_gaps(trace: Trace, count: int = GAPS_SHOWN) -> tuple[Gap, ...]:
    """The longest idle times, longest first; events are read in their order of begin time."""
    gaps = []
    start = trace.gpu[0].begin_ns
    last_to_end: dict[int, GpuEvent] = {}
    for event in trace.gpu:
        last = last_to_end.get(event.device)
        if last is not None and event.begin_ns > last.end_ns:
            gaps.append(
                Gap(
                    begin_ms=(last.end_ns - start) / NANOSECONDS_PER_MS,
                    length_ms=(event.begin_ns - last.end_ns) / NANOSECONDS_PER_MS,
                    before=last.name,
                    after=event.name,
                )
            )
        if last is None or event.end_ns > last.end_ns:
            last_to_end[event.device] = event
    return tuple(sorted(gaps, key=lambda gap: -gap.length_ms)[:count])
