"""`limit`: any `count` rows of a partition, without reading the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa

from smallpond.operators.rows import BATCH_ROWS, BatchRows, Rows, SqlRows
from smallpond.operators.sql import Sql
from smallpond.operators.task import TaskContext


@dataclasses.dataclass(frozen=True)
class Limit:
    """The first `count` rows in the order they come."""

    count: int

    def apply(self, inputs: Sequence[Rows], task: TaskContext, label: str) -> Rows:
        if isinstance(inputs[0], SqlRows):
            statement = f"select * from {{0}} limit {self.count}"
            return Sql((statement,)).apply(inputs, task, label)
        reader = inputs[0].reader(min(BATCH_ROWS, max(1, self.count)))
        return BatchRows(pa.RecordBatchReader.from_batches(reader.schema, self._first(reader)))

    def _first(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        left = self.count
        while left > 0 and (batch := next(iter(reader), None)) is not None:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
