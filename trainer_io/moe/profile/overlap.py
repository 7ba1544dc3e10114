"""How much communication hides behind computation, from a trace's GPU events.

Every figure is a length of a union of intervals, so concurrent kernels are not counted twice.
Communication is what the classes below name; all other GPU work is computation. A kernel that only
waits for its peers (notify) is communication and, besides, `waiting`: it moves no data.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer_io.moe.profile.intervals import (
    Intervals,
    complement,
    difference,
    intersection,
    total,
    union,
)
from trainer_io.moe.profile.kineto import GpuEvent, Trace

WAITING: Final = re.compile(r"(^|[^a-zA-Z])(cached_)?notify(_|\b|<)", re.IGNORECASE)
COMMUNICATION: Final = re.compile(
    r"::(dispatch|combine)\b|(^|_)(dispatch|combine)_kernel|nccl|all_?to_?all|all_?reduce"
    r"|reduce_?scatter|all_?gather|sendrecv|send_recv",
    re.IGNORECASE,
)

NANOSECONDS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """All launches of one kernel."""

    name: str
    kind: str
    calls: int
    total_ms: float


@dataclass(frozen=True, slots=True)
class OverlapReport:
    """Figures of one rank, in milliseconds.

    Attributes:
        span_ms: from the first GPU event to the last.
        busy_ms, idle_ms: time with any, without any GPU event.
        communication_ms, computation_ms: union lengths; they overlap.
        hidden_fraction: share of communication time during which computation ran, 1.0 without
            communication.
        exposed_ms: communication time without computation.
        waiting_ms: time in kernels that wait for peers; part of the communication.
        streams: busy milliseconds by stream.
        kernels: totals, longest first.
    """

    span_ms: float
    busy_ms: float
    idle_ms: float
    communication_ms: float
    computation_ms: float
    hidden_fraction: float
    exposed_ms: float
    waiting_ms: float
    streams: dict[str, float]
    kernels: tuple[KernelTotal, ...]


def kind_of(event: GpuEvent) -> str:
    """`waiting`, `communication` or `computation`."""
    if WAITING.search(event.name):
        return "waiting"
    if event.category == "kernel" and COMMUNICATION.search(event.name):
        return "communication"
    return "computation"


def analyse_overlap(trace: Trace) -> OverlapReport:
    """Computes the report of one rank's trace."""
    kinds = {event.name: kind_of(event) for event in trace.gpu}
    moving = _spans(trace.gpu, lambda e: kinds[e.name] != "computation")
    computing = _spans(trace.gpu, lambda e: kinds[e.name] == "computation")
    waiting = _spans(trace.gpu, lambda e: kinds[e.name] == "waiting")
    busy = _spans(trace.gpu, lambda _: True)
    begin, end = trace.gpu[0].begin_ns, max(event.end_ns for event in trace.gpu)
    exposed = difference(moving, computing)
    hidden = intersection(moving, computing)
    return OverlapReport(
        span_ms=(end - begin) / NANOSECONDS_PER_MS,
        busy_ms=_ms(busy),
        idle_ms=_ms(complement(busy, begin, end)),
        communication_ms=_ms(moving),
        computation_ms=_ms(computing),
        hidden_fraction=total(hidden) / total(moving) if len(moving) else 1.0,
        exposed_ms=_ms(exposed),
        waiting_ms=_ms(waiting),
        streams=_stream_busy(trace.gpu),
        kernels=_kernel_totals(trace.gpu, kinds),
    )


def _spans(events: Iterable[GpuEvent], wanted: Callable[[GpuEvent], bool]) -> Intervals:
    spans = [(e.begin_ns, e.end_ns) for e in events if wanted(e)]
    return union(np.array(spans, np.int64).reshape(-1, 2))


def _ms(spans: Intervals) -> float:
    return total(spans) / NANOSECONDS_PER_MS


def _stream_busy(events: Iterable[GpuEvent]) -> dict[str, float]:
    by_stream = defaultdict(list)
    for event in events:
        by_stream[event.device, event.stream].append(event)
    return {
        f"{device}/{stream}": _ms(_spans(members, lambda _: True))
        for (device, stream), members in sorted(by_stream.items())
    }


def _kernel_totals(events: Iterable[GpuEvent], kinds: dict[str, str]) -> tuple[KernelTotal, ...]:
    calls: dict[str, int] = defaultdict(int)
    duration: dict[str, int] = defaultdict(int)
    for event in events:
        calls[event.name] += 1
        duration[event.name] += event.duration_ns
    return tuple(
        KernelTotal(name, kinds[name], calls[name], duration[name] / NANOSECONDS_PER_MS)
        for name in sorted(duration, key=lambda n: -duration[n])
    )
