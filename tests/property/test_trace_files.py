"""Whatever is in a trace file, it is read and analysed, or refused with `TraceError`."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_io.moe.profile import (
    TraceError,
    analyse_overlap,
    longest_gaps,
    read_trace,
    sm_split,
)

EVENT = {
    "ph": "X",
    "cat": "kernel",
    "name": "gemm",
    "ts": 5,
    "dur": 2.5,
    "args": {"device": 0, "stream": 7, "grid": [112, 1, 1]},
}
DOCUMENT = {
    "traceEvents": [EVENT, {**EVENT, "ts": 9}],
    "distributedInfo": {"rank": 3, "world_size": 8},
    "deviceProperties": [{"name": "GPU", "numSms": 132}],
}
WRONG: list[Any] = [None, [], {}, "x", -1, 1e300, 10**30, True, [[]], [None], {"a": 1}]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces") / "trace.json"


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a document."""
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value))
    inside = [value[key] for key in keys if isinstance(value[key], dict | list)]
    return [(value, key) for key in keys] + [place for part in inside for place in places(part)]


def examine(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    try:
        trace = read_trace(file)
    except TraceError:
        return
    report = analyse_overlap(trace)
    assert 0 <= report.hidden_fraction <= 1
    assert report.busy_ms + report.idle_ms == pytest.approx(report.span_ms)
    longest_gaps(trace)
    sm_split(trace)


@given(index=st.integers(0, 10**6), wrong=st.sampled_from(WRONG))
def test_any_value_may_be_wrong(file: Path, index: int, wrong: Any) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    container, key = places(document)[index % len(places(document))]
    container[key] = wrong
    examine(file, json.dumps(document).encode())


@given(cut=st.integers(0, len(json.dumps(DOCUMENT)) - 1), noise=st.binary(max_size=4))
def test_any_file_may_be_cut(file: Path, cut: int, noise: bytes) -> None:
    examine(file, json.dumps(DOCUMENT).encode()[:cut] + noise)


def test_events_without_length_are_a_report_of_nothing(file: Path) -> None:
    file.write_text(json.dumps({"traceEvents": [{**EVENT, "dur": 0}] * 2}))
    report = analyse_overlap(read_trace(file))
    assert (report.span_ms, report.busy_ms, report.hidden_fraction) == (0, 0, 1)
    examine(file, file.read_bytes())


def test_deep_nesting_is_refused(file: Path) -> None:
    file.write_bytes(b"[" * 100_000)
    with pytest.raises(TraceError, match="not a complete JSON trace"):
        read_trace(file)
