"""Row groups of many parquet files: footers read once, row groups read in batches and cached.

Of a row group only the chunks of the wanted columns are read. What a mini-batch misses is fetched
with one `read_many` for all its row groups, as far as the cache's bound allows, and decoded from
memory by pyarrow.
"""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fs3.units import KIB, MIB
from trainer_io.dataset.source import (
    Bytes,
    FileEntry,
    FileSource,
    find_files,
    fingerprint,
    read_ranges,
)

CACHE_BYTES: Final = 256 * MIB
"""Default bound of decoded row groups that a data set keeps in one process."""

_TAIL_BYTES: Final = 64 * KIB
"""Read at the end of each file at first; nearly every footer fits."""

_MAGIC: Final = b"PAR1"
_TRAILER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Where one row group lies, and the byte ranges of the wanted columns."""

    entry: FileEntry
    metadata: pq.FileMetaData
    number: int
    ranges: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        return int(self.metadata.row_group(self.number).num_rows)

    @property
    def stored_bytes(self) -> int:
        return sum(length for _, length in self.ranges)

    def chunks(self, column: str) -> list[pq.ColumnChunkMetaData]:
        """What the footer says of the chunks under a top-level column."""
        return _chunks(self.metadata, self.number, column)

    @property
    def decoded_bytes(self) -> int:
        """Uncompressed size of all columns, as the footer states it."""
        return int(self.metadata.row_group(self.number).total_byte_size)


class RowGroups:
    """All row groups below a path, in file and then in row order.

    Args:
        columns: wanted top-level columns; None for all.
        cache_bytes: bound of decoded row groups kept, and of what one batch reads at once; a single
            larger row group is still read.

    Raises:
        FileNotFoundError: no parquet file there.
        ValueError: a file is not parquet, or lacks a wanted column.
    """

    def __init__(
        self, source: FileSource, path: str, columns: Sequence[str] | None, cache_bytes: int
    ) -> None:
        self.source = source
        self.columns = None if columns is None else list(columns)
        self._cache_bytes = cache_bytes
        self._cache: dict[int, pa.Table] = {}
        entries = find_files(source, path, "*.parquet")
        self.fingerprint = fingerprint(entries)
        self.files = len(entries)
        self.stored_bytes = sum(entry.size_bytes for entry in entries)
        footers = _read_footers(source, entries)
        self.groups = [
            RowGroup(entry, metadata, number, _ranges(entry, metadata, number, self.columns))
            for entry, metadata in zip(entries, footers, strict=True)
            for number in range(metadata.num_row_groups)
        ]
        self.schema: pa.Schema = footers[0].schema.to_arrow_schema()

    def tables(self, numbers: Iterable[int]) -> Iterator[tuple[int, pa.Table]]:
        """(number, wanted columns) of each of these row groups, cached ones first.

        No more than about the cache's bound is held at once, so take what you need from each before
        asking for the next.
        """
        missing = []
        for number in dict.fromkeys(numbers):
            table = self._cache.pop(number, None)
            if table is None:
                missing.append(number)
            else:
                self._cache[number] = table  # to the young end
                yield number, table
        for batch in self._batches(missing):
            yield from self._load(batch)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_cache": {}}

    def _batches(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        batch: list[int] = []
        size = 0
        for number in numbers:
            more = self.groups[number].stored_bytes
            if batch and size + more > self._cache_bytes:
                yield batch
                batch, size = [], 0
            batch.append(number)
            size += more
        if batch:
            yield batch

    def _load(self, numbers: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        groups = [self.groups[number] for number in numbers]
        parts = iter(
            read_ranges(self.source, [(g.entry.path, *r) for g in groups for r in g.ranges])
        )
        for number, group in zip(numbers, groups, strict=True):
            memory = _SparseFile(group, [next(parts) for _ in group.ranges])
            # Without its own buffering, which would read across columns that are not here.
            file = pq.ParquetFile(
                pa.PythonFile(memory, mode="r"), metadata=group.metadata, pre_buffer=False
            )
            table = file.read_row_group(group.number, columns=self.columns, use_threads=False)
            table = table.combine_chunks()
            self._remember(number, table)
            yield number, table

    def _remember(self, number: int, table: pa.Table) -> None:
        """Keeps the youngest tables that fit. No lock: a race costs at most one more read."""
        self._cache[number] = table
        kept = list(self._cache.items())
        excess = sum(table.nbytes for _, table in kept) - self._cache_bytes
        for old, table in kept:
            if excess <= 0:
                break
            self._cache.pop(old, None)
            excess -= table.nbytes


class _SparseFile(io.RawIOBase):
    """A file of which only the read column chunks are in memory; pyarrow asks for nothing else."""

    def __init__(self, group: RowGroup, parts: Sequence[Bytes]) -> None:
        self._size = group.entry.size_bytes
        self._parts = [
            (offset, part.data) for (offset, _), part in zip(group.ranges, parts, strict=True)
        ]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        for offset, part in self._parts:
            start = self._position - offset
            if start >= 0 and start + size <= len(part):
                self._position += size
                return bytes(part[start : start + size])
        raise ValueError(f"{size} bytes at {self._position} belong to no wanted column")


def _read_footers(source: FileSource, entries: Sequence[FileEntry]) -> list[pq.FileMetaData]:
    """The footers of all files: one batched read, and a second one for those that are large."""
    tails = read_ranges(source, [_tail(entry, _TAIL_BYTES) for entry in entries])
    lengths = [_footer_bytes(e, tail) for e, tail in zip(entries, tails, strict=True)]
    large = [i for i, length in enumerate(lengths) if length > len(tails[i])]
    again = read_ranges(source, [_tail(entries[i], lengths[i]) for i in large])
    for i, tail in zip(large, again, strict=True):
        tails[i] = tail
    footers = [tail[-length:] for tail, length in zip(tails, lengths, strict=True)]
    return [pq.read_metadata(pa.BufferReader(footer)) for footer in footers]


def _tail(entry: FileEntry, length: int) -> tuple[str, int, int]:
    length = min(length, entry.size_bytes)
    return entry.path, entry.size_bytes - length, length


def _footer_bytes(entry: FileEntry, tail: Bytes) -> int:
    """Bytes from the start of the footer to the end of the file."""
    trailer = tail[-_TRAILER_BYTES:].tobytes()
    length = int.from_bytes(trailer[:4], "little") + _TRAILER_BYTES
    if trailer[4:] != _MAGIC or length > entry.size_bytes:
        raise ValueError(f"{entry.path}: not a parquet file, or one whose writing was cut short")
    return length


def _ranges(
    entry: FileEntry, metadata: pq.FileMetaData, number: int, columns: Sequence[str] | None
) -> tuple[tuple[int, int], ...]:
    """(offset, length) of the column chunks under the wanted top-level columns."""
    names = metadata.schema.to_arrow_schema().names
    wanted = names if columns is None else columns
    for name in wanted:
        if name not in names:
            raise ValueError(f"{entry.path}: no column {name!r}; it has {', '.join(names)}")
    chunks = [chunk for name in wanted for chunk in _chunks(metadata, number, name)]
    return tuple((_start(chunk), chunk.total_compressed_size) for chunk in chunks)


def _chunks(metadata: pq.FileMetaData, number: int, name: str) -> list[pq.ColumnChunkMetaData]:
    """The chunks of row group `number` under the top-level column `name`, one per leaf."""
    group = metadata.row_group(number)
    chunks = (group.column(i) for i in range(group.num_columns))
    return [c for c in chunks if f"{c.path_in_schema}.".startswith(f"{name}.")]


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    """The first page: the dictionary's, where there is one."""
    pages = (chunk.dictionary_page_offset, chunk.data_page_offset)
    return int(min(offset for offset in pages if offset))


def cumulative(counts: Iterable[int]) -> npt.NDArray[np.int64]:
    """`[0, c0, c0 + c1, ...]`: where each part starts, and the total."""
    return np.concatenate(([0], np.cumsum(np.fromiter(counts, np.int64)))).astype(np.int64)


def part_of(starts: npt.NDArray[np.int64], indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Which part each index falls into; parts that are empty own nothing."""
    return np.asarray(np.searchsorted(starts, indices, side="right") - 1, np.int64)
