"""`map` with a Python function: one dictionary in, one dictionary out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from smallpond.io import arrow
from smallpond.operators.rows import BatchRows, Rows, for_row_functions, stream_of
from smallpond.operators.task import TaskContext

_ROW_TEXT_MAX = 200


def row_text(row: object) -> str:
    """A row as it appears in an error message."""
    text = repr(row)
    return text if len(text) <= _ROW_TEXT_MAX else text[:_ROW_TEXT_MAX] + "..."


@dataclasses.dataclass(frozen=True)
class MapRows:
    """Calls `function` with each row."""

    function: Callable[[dict[str, Any]], dict[str, Any]]
    schema: pa.Schema | None

    def apply(self, inputs: Sequence[Rows], task: TaskContext, label: str) -> Rows:
        reader = for_row_functions(inputs[0])
        batches = self._batches(reader, task, label)
        with task.step(label, "inferring the types of the result"):
            return BatchRows(stream_of(batches, self.schema, label))

    def _batches(
        self, reader: pa.RecordBatchReader, task: TaskContext, label: str
    ) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            results = []
            for row in arrow.columns_to_rows(batch):
                with_row = row
                try:
                    results.append(self.function(row))
                except Exception as error:
                    with task.step(label, f"row: {row_text(with_row)}"):
                        raise error
            with task.step(label, "building a batch of the returned rows"):
                made = arrow.rows_to_batch(results, self.schema)
            yield made
