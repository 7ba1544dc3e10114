"""The hash that decides which partition a key belongs to: specified here, not an engine's.

A layout written by `repartition(n, hash_by=...)` must mean the same for every later version of
every engine, so the function is our own (version 1, golden vectors in `tests/golden`):

* mix(x) is the finalizer of splitmix64 over unsigned 64-bit integers, all arithmetic modulo 2^64.
* An integer, boolean, date, time or timestamp hashes as mix(value + C), its value in its unit as
  two's complement. Integers of all widths agree.
* A floating-point number hashes as mix(bits + C) of its 64-bit form; -0.0 counts as 0.0, all NaN as
  one. A number with a whole value does not hash like the integer.
* A text or binary of n bytes, zero-padded to words of 8 little-endian bytes: h = mix(n + C), then
  h = mix(h xor word) for each word.
* NULL hashes as mix(0). Anything else hashes as the text that a cast to VARCHAR gives.
* Several columns: h = h1, then h = mix(h * 31 + h2) and so on.
* The partition is h mod n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_C = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0)  # mix(0) is 0
_NAN_BITS = np.uint64(0x7FF8000000000000)

Hashes = npt.NDArray[np.uint64]


def _mix(h: Hashes) -> Hashes:
    """In place; `h` is scratch of the caller's."""
    scratch = h >> np.uint64(30)
    h ^= scratch
    h *= _M1
    np.right_shift(h, np.uint64(27), out=scratch)
    h ^= scratch
    h *= _M2
    np.right_shift(h, np.uint64(31), out=scratch)
    h ^= scratch
    return h


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
    )


def hash_columns(columns: Sequence[pa.Array]) -> Hashes:
    """One hash per row of the key columns."""
    combined = _hash_column(columns[0])
    for column in columns[1:]:
        combined *= np.uint64(31)
        combined += _hash_column(column)
        combined = _mix(combined)
    return combined


def partition_of(columns: Sequence[pa.Array], partitions: int) -> npt.NDArray[np.uint32]:
    """The partition of each row."""
    return (hash_columns(columns) % np.uint64(partitions)).astype(np.uint32)


def _hash_column(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.uint64)
    if not (_is_bytes(kind) or _is_number(kind)):
        raise TypeError(f"no hash is specified for {kind}; cast the key to VARCHAR")
    hashes = _hash_bytes(column) if _is_bytes(kind) else _hash_numbers(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hash_numbers(column: pa.Array) -> Hashes:
    kind = column.type
    if column.null_count:
        column = column.fill_null(
            pa.scalar(0).cast(kind) if not pa.types.is_boolean(kind) else False
        )
    if pa.types.is_floating(kind):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        bits = values.view(np.uint64).copy()
        bits[np.isnan(values)] = _NAN_BITS
    elif pa.types.is_uint64(kind):
        bits = column.to_numpy().copy()
    else:
        bits = _integers(column).view(np.uint64).copy()
    bits += _C
    return _mix(bits)


def _integers(column: pa.Array) -> npt.NDArray[np.int64]:
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    signed: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return signed


def _hash_bytes(column: pa.Array) -> Hashes:
    if column.null_count:
        column = pc.fill_null(column, "" if pa.types.is_large_string(column.type) else b"")
    offsets_buffer, data = column.buffers()[1:]
    offsets = np.frombuffer(offsets_buffer, np.int64)[
        column.offset : column.offset + len(column) + 1
    ]
    starts = offsets[:-1]
    lengths = offsets[1:] - starts
    hashes = lengths.astype(np.uint64)
    hashes += _C
    _mix(hashes)
    if data is None or len(column) == 0:
        return hashes
    words = _words_at_any_byte(data)
    counts = (lengths + 7) >> 3
    rows = np.arange(len(column))
    for index in range(int(counts.max())):
        if index:
            rows = rows[counts[rows] > index]
        elif int(counts.min()) == 0:
            rows = rows[counts > 0]
        word = words[starts[rows] + 8 * index]
        used = np.minimum(lengths[rows] - 8 * index, 8).astype(np.uint64)
        word &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - used * np.uint64(8))
        word ^= hashes[rows]
        hashes[rows] = _mix(word)
    return hashes


def _words_at_any_byte(data: pa.Buffer) -> Hashes:
    """The 8 bytes from each byte on as little-endian words; zeros behind the end."""
    padded = np.zeros(data.size + 8, np.uint8)
    padded[: data.size] = np.frombuffer(data, np.uint8)
    return np.ndarray((data.size + 1,), "<u8", padded, 0, (1,))
