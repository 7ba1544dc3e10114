"""The sink of a materialised frame: its rows as segments, in order."""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from smallpond.io.segments import Segment, SegmentWriter
from smallpond.operators.rows import BATCH_ROWS, Rows, gathered
from smallpond.operators.step import TaskOutput
from smallpond.operators.task import TaskContext

_SEGMENT_ROWS = 1 << 20
_SEGMENT_BYTES = 32 << 20  # a reader of a few rows reads at most this much


def output_of(
    parts: list[list[Segment]], schema: pa.Schema, written: tuple[str, ...] = ()
) -> TaskOutput:
    """The task's output in its final form."""
    segments = [segment for part in parts for segment in part]
    return TaskOutput(
        parts=tuple(tuple(part) for part in parts),
        schema=schema.serialize().to_pybytes(),
        rows=sum(segment.rows for segment in segments),
        size_bytes=sum(segment.size_bytes for segment in segments),
        written=written,
    )


@dataclasses.dataclass(frozen=True)
class Store:
    """Writes the rows as segments of about 32 MiB, so that slices of them can be read alone."""

    def consume(self, rows: Rows, task: TaskContext, label: str) -> TaskOutput:
        del label
        reader = rows.reader(BATCH_ROWS)
        writer = SegmentWriter(task.output_path, task.inline_bytes_max)
        batches = gathered(reader, _SEGMENT_ROWS, _SEGMENT_BYTES)
        segments = [writer.write(reader.schema, [batch]) for batch in batches]
        writer.close()
        return output_of([segments], reader.schema)
