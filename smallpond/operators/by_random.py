"""`random_shuffle`: every row goes to a random partition (and each is then ordered at random)."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smallpond.operators.rows import Rows
from smallpond.operators.task import TaskContext


@dataclasses.dataclass(frozen=True)
class ByRandom:
    """Partitions by a generator that is seeded by the task, so that a retry deals the same way."""

    partitions: int
    salt: int

    def prepared(self, rows: Rows, task: TaskContext, label: str) -> Rows:
        del task, label
        return rows

    def key_columns(self, schema: pa.Schema) -> int:
        del schema
        return 0

    def assign(
        self, batch: pa.RecordBatch, task: TaskContext, label: str
    ) -> npt.NDArray[np.uint32]:
        del label
        dice = task.dice(f"deal {self.salt}")
        return np.asarray(dice.integers(0, self.partitions, batch.num_rows, np.uint32))
