"""How communication and computation share the GPU's multiprocessors, from the launch grids."""

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate

from trainer_io.moe.profile.kineto import Trace
from trainer_io.moe.profile.overlap import kind_of


def sm_split(trace: Trace) -> dict[str, int]:
    """Multiprocessors that kernels of each kind use: the median over time, by kernel duration.

    A grid of fewer blocks than the GPU has multiprocessors leaves the rest to others; a larger one
    can use all. Kinds whose launches carry no grid are left out, and all are when the trace does
    not say how many multiprocessors the GPU has.
    """
    if trace.sm_count == 0:
        return {}
    used: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in trace.gpu:
        blocks = 1
        for extent in event.grid:
            blocks *= extent
        if event.grid:
            used[kind_of(event)].append((min(blocks, trace.sm_count), event.duration_ns))
    return {kind: _weighted_median(samples) for kind, samples in sorted(used.items())}


def _weighted_median(samples: list[tuple[int, int]]) -> int:
    values, weights = zip(*sorted(samples), strict=True)
    reached = list(accumulate(weights))
    return int(values[bisect_left(reached, reached[-1] / 2)])
