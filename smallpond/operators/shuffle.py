"""The sink before an exchange: rows are split by partition and written behind each other.

Rows gather in one buffer; when it is full they are brought into partition order by one stable
counting sort, and each partition's run is appended to the task's single file. So memory is bounded
whatever the number of partitions, there are as many files as tasks, and rows of a partition keep
the order in which they came. How the partition of a row is found is the exchange's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smallpond.io.segments import Segment, SegmentWriter
from smallpond.operators.rows import BatchRows, Rows, gathered
from smallpond.operators.step import TaskOutput
from smallpond.operators.store import output_of
from smallpond.operators.task import TaskContext

_BATCH_ROWS = 1 << 20
_BUFFER_ROWS_MAX = 1 << 31
_BUFFER_BYTES_MIN = 32 << 20  # small enough to stay in the caches and allocator of a worker
_RUN_BYTES = 64 << 10  # with many partitions the buffer grows, so that runs do not get tiny
_BUFFER_SHARE = 8  # of the task's memory at most: the buffer, its sorted copy, writes in flight


class Partitioning(Protocol):
    """Finds the partition of each row."""

    @property
    def partitions(self) -> int: ...

    def prepared(self, rows: Rows, task: TaskContext, label: str) -> Rows:
        """The rows with whatever key columns are needed, put last."""

    def key_columns(self, schema: pa.Schema) -> int:
        """How many columns at the end `prepared` added, to be dropped again."""

    def assign(
        self, batch: pa.RecordBatch, task: TaskContext, label: str
    ) -> npt.NDArray[np.uint32]:
        """The partition of each row of a prepared batch."""


@dataclasses.dataclass(frozen=True)
class Shuffle:
    """Splits a task's rows over the partitions of an exchange."""

    partitioning: Partitioning

    def consume(self, rows: Rows, task: TaskContext, label: str) -> TaskOutput:
        count = self.partitioning.partitions
        if isinstance(rows, BatchRows) and not rows.schema.names:
            return output_of([[] for _ in range(count)], rows.schema)
        parts: list[list[Segment]] = [[] for _ in range(count)]
        reader = self.partitioning.prepared(rows, task, label).reader(_BATCH_ROWS)
        extra = self.partitioning.key_columns(reader.schema)
        schema = pa.schema([reader.schema.field(i) for i in range(len(reader.schema) - extra)])
        writer = SegmentWriter(task.output_path, task.inline_bytes_max)
        buffer_bytes = _buffer_bytes(count, task.memory_bytes)
        for batch in gathered(reader, _BUFFER_ROWS_MAX, buffer_bytes):
            partition = self.partitioning.assign(batch, task, label)
            data = batch.select(list(range(len(schema))))
            for index, run in _runs(data, partition, count):
                parts[index].append(writer.write(schema, [run]))
        writer.close()
        return output_of(parts, schema)


def _buffer_bytes(partitions: int, memory_bytes: int) -> int:
    return min(max(_BUFFER_BYTES_MIN, partitions * _RUN_BYTES), memory_bytes // _BUFFER_SHARE)


def _runs(
    batch: pa.RecordBatch, partition: npt.NDArray[np.uint32], count: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each partition that has any, in the order they came."""
    sizes = np.bincount(partition, minlength=count)
    # numpy sorts 8- and 16-bit integers by radix, which makes this a counting sort.
    narrow = (
        partition.astype(np.uint8 if count <= 1 << 8 else np.uint16)
        if count <= 1 << 16
        else (partition)
    )
    if int(sizes.max(initial=0)) < len(partition):
        batch = batch.take(pa.array(np.argsort(narrow, kind="stable")))
    start = 0
    for index in np.flatnonzero(sizes):
        size = int(sizes[index])
        yield int(index), batch.slice(start, size)
        start += size
