"""`filter` with a Python function: rows for which it returns a true value stay, types and all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from smallpond.io import arrow
from smallpond.operators.map_rows import row_text
from smallpond.operators.rows import BatchRows, Rows, for_row_functions
from smallpond.operators.task import TaskContext


@dataclasses.dataclass(frozen=True)
class FilterRows:
    """Calls `function` with each row."""

    function: Callable[[dict[str, Any]], Any]

    def apply(self, inputs: Sequence[Rows], task: TaskContext, label: str) -> Rows:
        reader = for_row_functions(inputs[0])
        kept = self._batches(reader, task, label)
        return BatchRows(pa.RecordBatchReader.from_batches(reader.schema, kept))

    def _batches(
        self, reader: pa.RecordBatchReader, task: TaskContext, label: str
    ) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            mask = []
            for row in arrow.columns_to_rows(batch):
                try:
                    mask.append(bool(self.function(row)))
                except Exception as error:
                    with task.step(label, f"row: {row_text(row)}"):
                        raise error
            yield batch.filter(pa.array(mask, pa.bool_()))
