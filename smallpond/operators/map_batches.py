"""`map_batches`: a Python function from Arrow table to Arrow table.

Batches have exactly `batch_size` rows but for the last of a partition; they may span input files
and never span partitions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from smallpond.io import arrow
from smallpond.operators.rows import BatchRows, Rows, stream_of
from smallpond.operators.task import TaskContext


@dataclasses.dataclass(frozen=True)
class MapBatches:
    """Calls `function` with each batch."""

    function: Callable[[pa.Table], pa.Table]
    batch_size: int
    schema: pa.Schema | None = None

    def apply(self, inputs: Sequence[Rows], task: TaskContext, label: str) -> Rows:
        reader = inputs[0].reader(self.batch_size)
        batches = self._batches(reader, task, label)
        with task.step(label, "inferring the types of the result"):
            return BatchRows(stream_of(batches, self.schema, label))

    def _batches(
        self, reader: pa.RecordBatchReader, task: TaskContext, label: str
    ) -> Iterator[pa.RecordBatch]:
        first_row = 0
        for batch in reader:
            table = pa.Table.from_batches([batch])
            with task.step(label, f"batch of {batch.num_rows} rows from row {first_row} on"):
                result = self.function(table)
                if isinstance(result, pa.RecordBatch):
                    result = pa.Table.from_batches([result])
                if not isinstance(result, pa.Table):
                    kind = type(result).__name__
                    raise TypeError(f"the function must return a pyarrow.Table, not {kind}")
            first_row += batch.num_rows
            made = arrow.large_table(result)
            yield from made.to_batches() or [pa.RecordBatch.from_pylist([], schema=made.schema)]
