"""Trace analysis: interval arithmetic against a grid, generated traces with known overlap."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_io.moe.profile import TraceError, analyse_overlap, read_trace
from trainer_io.moe.profile.intervals import (
    Intervals,
    complement,
    difference,
    intersection,
    total,
    union,
)
from trainer_io.moe.profile.kineto import write_trace

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12).map(
    lambda pairs: np.array([(b, b + n) for b, n in pairs], np.int64).reshape(-1, 2)
)


def cells(intervals: Intervals) -> set[int]:
    return {t for begin, end in intervals.tolist() for t in range(begin, end)}


@given(spans, spans)
def test_interval_sets_are_sets(a: Intervals, b: Intervals) -> None:
    left, right = union(a), union(b)
    assert cells(left) == cells(a)
    assert cells(intersection(left, right)) == cells(a) & cells(b)
    assert cells(difference(left, right)) == cells(a) - cells(b)
    assert cells(complement(left, 0, 60)) == set(range(60)) - cells(a)
    for result in (left, intersection(left, right), difference(left, right)):
        assert total(result) == len(cells(result))
        gaps = result[1:, 0] - result[:-1, 1]
        assert (gaps > 0).all(), "sorted, disjoint and maximal"


def kernel(name: str, begin_us: float, duration_us: float, stream: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": begin_us,
        "dur": duration_us,
        "args": {"device": 0, "stream": stream, "grid": [112, 1, 1]},
    }


def document(*events: dict[str, Any]) -> dict[str, Any]:
    return {"traceEvents": list(events), "distributedInfo": {"rank": 3, "world_size": 8}}


DISPATCH = "void ep::internode::dispatch<false, 8>(int4*)"
NOTIFY = "void ep::internode::notify_dispatch<false, 8>(int const*)"
GEMM = "sm90_fp8_gemm"


@given(
    lead=st.integers(1, 500),
    shared=st.integers(1, 500),
    tail=st.integers(1, 500),
    wait=st.integers(1, 50),
)
def test_known_overlap_is_reported(
    tmp_path_factory: pytest.TempPathFactory, lead: int, shared: int, tail: int, wait: int
) -> None:
    """notify, then a dispatch that begins `lead` before a GEMM and shares `shared` with it."""
    path = tmp_path_factory.mktemp("trace") / "t.json.gz"
    write_trace(
        path,
        document(
            kernel(NOTIFY, 1000, wait, 27),
            kernel(DISPATCH, 1000 + wait, lead + shared, 27),
            kernel(GEMM, 1000 + wait + lead, shared + tail, 7),
        ),
    )
    report = analyse_overlap(read_trace(path))
    assert report.span_ms == pytest.approx((wait + lead + shared + tail) / 1000)
    assert report.exposed_ms == pytest.approx((wait + lead) / 1000)
    assert report.waiting_ms == pytest.approx(wait / 1000)
    assert report.hidden_fraction == pytest.approx(shared / (wait + lead + shared))
    assert report.idle_ms == 0


def test_concurrent_kernels_count_once(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    write_trace(path, document(kernel(GEMM, 0, 100, 7), kernel("cast", 50, 100, 8)))
    report = analyse_overlap(read_trace(path))
    assert (report.computation_ms, report.streams) == (0.15, {"0/7": 0.1, "0/8": 0.1})
    assert report.hidden_fraction == 1.0
    assert [k.name for k in report.kernels] == [GEMM, "cast"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cut short"),
        (b"[1", "cut short"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"traceEvents": []}', "no GPU events"),
        (b'{"traceEvents": [{"cat": "kernel", "ph": "X"}]}', "malformed event"),
        (b'{"traceEvents": [7]}', "malformed event"),
        (gzip.compress(json.dumps({"traceEvents": []}).encode())[:-9], "damaged or cut short"),
        (b"\x1f\x8b nothing", "damaged or cut short"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)


def test_missing_file() -> None:
    with pytest.raises(FileNotFoundError):
        read_trace("/nowhere/trace.json")
