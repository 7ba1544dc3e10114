"""`repartition(n, hash_by=...)`: equal keys meet in one partition."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smallpond.operators import hashing
from smallpond.operators.engine import quote
from smallpond.operators.rows import Rows, SqlRows
from smallpond.operators.sql import Sql
from smallpond.operators.task import TaskContext

_HASHED_AS_THEY_ARE = re.compile(
    r"(U?(TINY|SMALL|BIG)INT|U?INTEGER|BOOLEAN|FLOAT|DOUBLE|DATE|TIME|TIMESTAMP.*|VARCHAR|BLOB"
    r'|"?NULL"?)$'
)


@dataclasses.dataclass(frozen=True)
class ByHash:
    """Partitions by the hash of `keys`, columns or SQL expressions.

    Key columns are appended for the time of the split, because an expression has to be computed
    and because types that are hashed by their text have to be cast; the output does not have them.
    """

    partitions: int
    keys: tuple[str, ...]

    def prepared(self, rows: Rows, task: TaskContext, label: str) -> Rows:
        names = [quote(f"smallpond key {index}") for index in range(len(self.keys))]
        columns = ", ".join(f"({key}) as {n}" for key, n in zip(self.keys, names, strict=True))
        keyed = Sql((f"select *, {columns} from {{0}}",)).apply([rows], task, label)
        assert isinstance(keyed, SqlRows)
        types = keyed.types()[-len(names) :]
        casts = [
            f"{name}::varchar as {name}"
            for name, kind in zip(names, types, strict=True)
            if not _HASHED_AS_THEY_ARE.match(kind)
        ]
        return keyed.over(f"select * replace ({', '.join(casts)}) from {{0}}") if casts else keyed

    def key_columns(self, schema: pa.Schema) -> int:
        del schema
        return len(self.keys)

    def assign(
        self, batch: pa.RecordBatch, task: TaskContext, label: str
    ) -> npt.NDArray[np.uint32]:
        with task.step(label, f"hash_by: {', '.join(self.keys)}"):
            return hashing.partition_of(batch.columns[-len(self.keys) :], self.partitions)
