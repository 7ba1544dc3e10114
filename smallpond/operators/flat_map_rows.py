"""`flat_map` with a Python function: one dictionary in, any number of dictionaries out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from smallpond.io import arrow
from smallpond.operators.map_rows import row_text
from smallpond.operators.rows import BATCH_ROWS, BatchRows, Rows, for_row_functions, stream_of
from smallpond.operators.task import TaskContext


@dataclasses.dataclass(frozen=True)
class FlatMapRows:
    """Calls `function` with each row and puts the rows it returns or yields behind each other."""

    function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
    schema: pa.Schema | None

    def apply(self, inputs: Sequence[Rows], task: TaskContext, label: str) -> Rows:
        reader = for_row_functions(inputs[0])
        batches = self._batches(reader, task, label)
        with task.step(label, "inferring the types of the result"):
            return BatchRows(stream_of(batches, self.schema, label))

    def _batches(
        self, reader: pa.RecordBatchReader, task: TaskContext, label: str
    ) -> Iterator[pa.RecordBatch]:
        results: list[dict[str, Any]] = []
        for batch in reader:
            for row in arrow.columns_to_rows(batch):
                try:
                    results.extend(self.function(row))
                except Exception as error:
                    with task.step(label, f"row: {row_text(row)}"):
                        raise error
                if len(results) >= BATCH_ROWS:
                    yield self._made(results, task, label)
                    results = []
        if results:
            yield self._made(results, task, label)

    def _made(self, rows: list[dict[str, Any]], task: TaskContext, label: str) -> pa.RecordBatch:
        with task.step(label, "building a batch of the returned rows"):
            return arrow.rows_to_batch(rows, self.schema)
