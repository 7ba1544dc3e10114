"""Intermediate rows: Arrow IPC streams in regions of a file, or inline in the message about them.

A task writes one file, whatever the number of partitions its output is split into: each flush
appends one self-contained stream per partition, and the `Segment`s that say where they lie travel
with the task's result. Readers of a partition map or fetch just their regions. Nothing has to be
renamed or listed, a retried task writes another file, and a small result needs no file at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from smallpond.io import files

_ALIGNMENT_BYTES = 64  # Arrow buffers inside a mapped stream stay aligned for SIMD reads
_FETCH_BYTES_MAX = 64 << 20  # remote regions are fetched in groups of about this size


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """`rows` rows, from `first_row` on, of one IPC stream of `size_bytes` bytes."""

    rows: int
    size_bytes: int
    path: str = ""
    offset: int = 0
    inline: bytes | None = None
    first_row: int = 0

    def slice(self, first: int, rows: int) -> Segment:
        """The part that starts `first` rows into this segment."""
        assert 0 <= first <= first + rows <= self.rows
        return dataclasses.replace(self, first_row=self.first_row + first, rows=rows)


class LostSegment(OSError):
    """The file of a segment is gone; the task that wrote it has to run again."""

    def __init__(self, path: str, stage: int, partition: int) -> None:
        super().__init__(path, stage, partition)
        self.path = path
        self.stage = stage
        self.partition = partition

    def __str__(self) -> str:
        return f"{self.path} is gone"


def _lost(path: str) -> OSError:
    """Names follow `JobDirectory.attempt_path`: staging/{stage}/{partition}.{attempt}.arrow."""
    directory, name = files.parent_and_name(path)
    stage, partition = files.parent_and_name(directory)[1], name.partition(".")[0]
    if stage.isdigit() and partition.isdigit():
        return LostSegment(path, int(stage), int(partition))
    return FileNotFoundError(f"{path} is gone; it held rows given to the session")


class SegmentWriter:
    """Writes streams behind each other; keeps them inline while they are small in total."""

    def __init__(self, path: str, inline_bytes_max: int) -> None:
        self._path = path
        self._inline_bytes_max = inline_bytes_max
        self._inline: list[pa.Buffer] = []
        self._inline_bytes = 0
        self._file: pa.NativeFile | None = None
        self._options = pa.ipc.IpcWriteOptions(
            compression="lz4" if files.is_remote(path) else None,
            emit_dictionary_deltas=False,
        )

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Segment:
        """Append one stream. The segment is final only after `close`."""
        if self._file is not None:
            return self._append(schema, batches)
        sink = pa.BufferOutputStream()
        rows = _write_stream(sink, schema, batches, self._options)
        buffer = sink.getvalue()
        self._inline_bytes += buffer.size
        if self._inline_bytes <= self._inline_bytes_max:
            self._inline.append(buffer)
            return Segment(rows, buffer.size, inline=buffer.to_pybytes())
        self._file = files.files_for(self._path).open_output(self._path)
        self._file.write(buffer)
        return Segment(rows, buffer.size, self._path, 0)

    def _append(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Segment:
        assert self._file is not None
        offset = self._file.tell()
        padding = -offset % _ALIGNMENT_BYTES
        self._file.write(b"\0" * padding)
        rows = _write_stream(self._file, schema, batches, self._options)
        end = self._file.tell()
        return Segment(rows, end - offset - padding, self._path, offset + padding)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _write_stream(
    sink: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch], options: pa.ipc.IpcWriteOptions
) -> int:
    rows = 0
    with pa.ipc.new_stream(sink, schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
            rows += batch.num_rows
    return rows


def read_segments(segments: Sequence[Segment]) -> Iterator[pa.RecordBatch]:
    """The rows of the segments in order; mapped where local, fetched in groups where remote."""
    mapped: dict[str, pa.Buffer] = {}
    for group in _groups(segments):
        fetched = _fetch(group)
        for segment in group:
            buffer = fetched.get(segment)
            if buffer is None and segment.inline is None:
                if segment.path not in mapped:
                    mapped[segment.path] = _map(segment.path)
                buffer = mapped[segment.path].slice(segment.offset, segment.size_bytes)
            yield from _read_stream(segment, buffer)


def _map(path: str) -> pa.Buffer:
    try:
        return files.files_for(path).open_input(path).read_buffer()
    except FileNotFoundError as error:
        raise _lost(path) from error


def _groups(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    size_bytes = 0
    for segment in segments:
        if segment.rows == 0:
            continue
        group.append(segment)
        size_bytes += segment.size_bytes
        if size_bytes >= _FETCH_BYTES_MAX:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _fetch(group: list[Segment]) -> dict[Segment, pa.Buffer]:
    """One batched read per scheme for all remote regions of the group."""
    remote = [s for s in group if s.inline is None and files.is_remote(s.path)]
    fetched: dict[Segment, pa.Buffer] = {}
    for place in {files.files_for(s.path) for s in remote}:
        wanted = [s for s in remote if files.files_for(s.path) is place]
        assert isinstance(place, files.RemoteFiles)
        try:
            blocks = place.read_ranges([(s.path, s.offset, s.size_bytes) for s in wanted])
        except FileNotFoundError as error:
            gone = next((s.path for s in wanted if not place.exists(s.path)), wanted[0].path)
            raise _lost(gone) from error
        fetched.update(zip(wanted, blocks, strict=True))
    return fetched


def _read_stream(segment: Segment, buffer: pa.Buffer | None) -> Iterator[pa.RecordBatch]:
    """Batches of one stream, cut to the rows the segment stands for."""
    skip, left = segment.first_row, segment.rows
    for batch in pa.ipc.open_stream(segment.inline if buffer is None else buffer):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        piece = batch.slice(skip, min(left, batch.num_rows - skip))
        skip = 0
        left -= piece.num_rows
        yield piece
        if left == 0:
            return
