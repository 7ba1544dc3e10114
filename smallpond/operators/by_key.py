"""`repartition(n, by=...)`: the value of a column or expression is the partition's number."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smallpond.operators.engine import quote
from smallpond.operators.rows import Rows
from smallpond.operators.sql import Sql
from smallpond.operators.task import TaskContext


@dataclasses.dataclass(frozen=True)
class ByKey:
    """Partitions by an integer in [0, partitions)."""

    partitions: int
    key: str

    def prepared(self, rows: Rows, task: TaskContext, label: str) -> Rows:
        column = f"({self.key}) as {quote('smallpond key')}"
        return Sql((f"select *, {column} from {{0}}",)).apply([rows], task, label)

    def key_columns(self, schema: pa.Schema) -> int:
        del schema
        return 1

    def assign(
        self, batch: pa.RecordBatch, task: TaskContext, label: str
    ) -> npt.NDArray[np.uint32]:
        with task.step(label, f"by: {self.key}"):
            keys = batch.columns[-1]
            if keys.null_count:
                raise ValueError(f"partition key is NULL in {keys.null_count} rows")
            if not pa.types.is_integer(keys.type):
                keys = keys.cast(pa.int64())
            values = keys.to_numpy()
            outside = np.flatnonzero((values < 0) | (values >= self.partitions))
            if len(outside):
                raise ValueError(
                    f"partition key {values[outside[0]]} is out of range 0-{self.partitions - 1}"
                )
            return np.asarray(values, np.uint32)
