"""Sets of time as sorted, disjoint half-open intervals: the arithmetic behind every overlap figure.

An interval set is an int64 array `[n, 2]` of (begin, end) in nanoseconds.
"""

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.int64]

EMPTY: Intervals = np.empty((0, 2), np.int64)


def union(spans: Intervals) -> Intervals:
    """Merges any spans, overlapping and unordered ones too; empty spans vanish."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if len(spans) == 0:
        return EMPTY
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate(([True], spans[1:, 0] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.stack((spans[first, 0], reach[last]), axis=1)


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """Time that lies in both sets: covered by two of the boundaries' depth."""
    if len(a) == 0 or len(b) == 0:
        return EMPTY
    times = np.concatenate((a[:, 0], b[:, 0], a[:, 1], b[:, 1]))
    steps = np.repeat((1, -1), len(a) + len(b))
    # At equal times an end comes before a begin, so that touching intervals do not intersect.
    order = np.lexsort((steps, times))
    times, depth = times[order], np.cumsum(steps[order])
    inside = np.flatnonzero(depth[:-1] == 2)
    return union(np.stack((times[inside], times[inside + 1]), axis=1))


def difference(a: Intervals, b: Intervals) -> Intervals:
    """Time in `a` that is not in `b`."""
    if len(a) == 0:
        return EMPTY
    begin, end = int(a[0, 0]), int(a[-1, 1])
    return intersection(a, complement(b, begin, end))


def complement(spans: Intervals, begin: int, end: int) -> Intervals:
    """Time between `begin` and `end` that is not in the set."""
    edges = np.concatenate(([begin], np.clip(spans, begin, end).ravel(), [end]))
    return union(edges.reshape(-1, 2))


def total(spans: Intervals) -> int:
    """Nanoseconds covered by a set."""
    return int((spans[:, 1] - spans[:, 0]).sum())
