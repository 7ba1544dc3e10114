"""The partition hash: golden vectors, the specification in plain Python, and its promises."""

from __future__ import annotations

import datetime
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smallpond.operators.hashing import hash_columns, partition_of

GOLDEN = Path(__file__).parents[2] / "golden" / "smallpond_hash.json"
MASK = (1 << 64) - 1
C = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def reference(value: Any) -> int:
    """The specification, one value at a time."""
    if value is None:
        return mix(0)
    if isinstance(value, float):
        bits = 0x7FF8000000000000 if value != value else struct.unpack("<Q", _double(value))[0]
        return mix(bits + C & MASK)
    if isinstance(value, int):
        return mix(value + C & MASK)
    data = value.encode() if isinstance(value, str) else value
    h = mix(len(data) + C & MASK)
    for start in range(0, len(data), 8):
        h = mix(h ^ int.from_bytes(data[start : start + 8], "little"))
    return h


def _double(value: float) -> bytes:
    return struct.pack("<d", 0.0 if value == 0 else value)


def hashed(values: list[Any], kind: pa.DataType) -> list[int]:
    return [int(h) for h in hash_columns([pa.array(values, kind)])]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers_hash_as_specified(values: list[int | None]) -> None:
    assert hashed(values, pa.int64()) == [reference(v) for v in values]


@given(st.lists(st.none() | st.floats()))
def test_floats_hash_as_specified(values: list[float | None]) -> None:
    assert hashed(values, pa.float64()) == [reference(v) for v in values]


@given(st.lists(st.none() | st.text()), st.lists(st.none() | st.binary(max_size=40)))
def test_text_and_binary_hash_as_specified(
    texts: list[str | None], binaries: list[bytes | None]
) -> None:
    assert hashed(texts, pa.large_string()) == [reference(v) for v in texts]
    assert hashed(binaries, pa.large_binary()) == [reference(v) for v in binaries]


@given(st.lists(st.text(max_size=20), min_size=3), st.data())
def test_a_slice_hashes_like_the_whole(values: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values) - 1))
    array = pa.array(values, pa.large_string())
    assert list(hash_columns([array.slice(start)])) == list(hash_columns([array]))[start:]


def test_golden_vectors() -> None:
    """Layouts written by earlier versions stay valid: these values never change."""
    golden = json.loads(GOLDEN.read_text())
    for case in golden["integers"]:
        assert hashed([case["value"]], pa.int64()) == [case["hash"]]
    for case in golden["texts"]:
        assert hashed([case["value"]], pa.large_string()) == [case["hash"]]
    for case in golden["floats"]:
        assert hashed([float(case["value"])], pa.float64()) == [case["hash"]]
    pair = golden["pair"]
    columns = [pa.array([pair["integer"]]), pa.array([pair["text"]], pa.large_string())]
    assert int(hash_columns(columns)[0]) == pair["hash"]


def test_equal_values_of_different_widths_meet() -> None:
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64()):
        assert hashed([0, 1, 127], kind) == hashed([0, 1, 127], pa.int64())
    assert hashed([0.5], pa.float32()) == hashed([0.5], pa.float64())
    assert hashed([-0.0], pa.float64()) == hashed([0.0], pa.float64())
    assert hashed([True], pa.bool_()) == hashed([1], pa.int64())
    day = datetime.date(1970, 1, 11)
    assert hashed([day], pa.date32()) == hashed([10], pa.int64())
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1)
    assert hashed([moment], pa.timestamp("us")) == hashed([1_000_000], pa.int64())


def test_types_without_a_hash_are_refused() -> None:
    with pytest.raises(TypeError, match="cast the key to VARCHAR"):
        hash_columns([pa.array([[1]])])


def test_partitions_are_balanced() -> None:
    keys = pa.array([f"key-{i}" for i in range(100_000)], pa.large_string())
    for columns in ([pa.array(range(100_000))], [keys]):
        counts = [0] * 16
        for partition in partition_of(columns, 16):
            counts[partition] += 1
        assert max(counts) < 1.05 * 100_000 / 16
        assert min(counts) > 0.95 * 100_000 / 16
