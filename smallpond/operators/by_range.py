"""Global order: rows are split into ranges of the sort key, so that partitions follow each other.

The order of any number of columns, ascending or not, NULL first or last, is turned into one binary
key that compares byte by byte (`create_sort_key`, the one DuckDB sorts by). A sample of keys gives
the boundaries; a binary search over them, as nested SQL conditions, gives a row's range. Rows with
equal keys are always in one range, so a heavy key makes a large partition, never a wrong order.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smallpond.operators.engine import quote
from smallpond.operators.rows import BATCH_ROWS, Rows
from smallpond.operators.sql import Sql
from smallpond.operators.task import TaskContext

_TERM = re.compile(
    r"(?P<key>.*?)(?:\s+(?P<way>asc|desc|ascending|descending))?"
    r"(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.I | re.S,
)
_RANGE = quote("smallpond range")


@dataclasses.dataclass(frozen=True)
class SortTerm:
    """One key of an order; NULL is last unless said otherwise, as in DuckDB."""

    key: str
    descending: bool = False
    nulls_first: bool = False

    @classmethod
    def parse(cls, text: str) -> SortTerm:
        """Read `key [asc|desc] [nulls first|last]`."""
        match = _TERM.fullmatch(text)
        assert match is not None  # the pattern matches any text
        way, nulls = match["way"] or "asc", match["nulls"] or "last"
        descending = way.lower().startswith("desc")
        return cls(match["key"].strip(), descending, nulls.lower() == "first")

    @property
    def modifier(self) -> str:
        way = "DESC" if self.descending else "ASC"
        return f"{way} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


def sort_key(terms: Sequence[SortTerm]) -> str:
    """SQL for the binary key of an order."""
    arguments = ", ".join(f"({term.key}), '{term.modifier}'" for term in terms)
    return f"create_sort_key({arguments})"


def order_by(terms: Sequence[SortTerm]) -> str:
    return ", ".join(f"({term.key}) {term.modifier}" for term in terms)


@dataclasses.dataclass(frozen=True)
class FindRange:
    """Adds the number of each row's range; input 0 is the rows, input 1 the sampled keys."""

    partitions: int
    terms: tuple[SortTerm, ...]

    def apply(self, inputs: Sequence[Rows], task: TaskContext, label: str) -> Rows:
        sample = inputs[1].reader(BATCH_ROWS).read_all()
        keys = sorted(sample.column(0).to_pylist())
        bounds = boundaries(keys, self.partitions)
        condition = range_condition(bounds, 0)
        query = (
            f"select * exclude ({_RANGE}), {condition} as {_RANGE} "
            f"from (select *, {sort_key(self.terms)} as {_RANGE} from {{0}})"
        )
        return Sql((query,)).apply([inputs[0]], task, label)


def boundaries(keys: Sequence[bytes], partitions: int) -> list[bytes]:
    """The distinct keys, ascending, that cut sorted sample keys into about equal ranges."""
    if not keys:
        return []
    cuts = [keys[len(keys) * part // partitions] for part in range(1, partitions)]
    return list(dict.fromkeys(cuts))


def range_condition(bounds: Sequence[bytes], first: int) -> str:
    """SQL for `first` plus the number of boundaries that are at most the key."""
    if not bounds:
        return str(first)
    middle = len(bounds) // 2
    text = "".join(f"\\x{byte:02x}" for byte in bounds[middle])
    below = range_condition(bounds[:middle], first)
    above = range_condition(bounds[middle + 1 :], first + middle + 1)
    return f"case when {_RANGE} < '{text}'::blob then {below} else {above} end"


@dataclasses.dataclass(frozen=True)
class ByRange:
    """Partitions by the number that `FindRange` put into the last column, and drops it."""

    partitions: int

    def prepared(self, rows: Rows, task: TaskContext, label: str) -> Rows:
        del task, label
        return rows

    def key_columns(self, schema: pa.Schema) -> int:
        del schema
        return 1

    def assign(
        self, batch: pa.RecordBatch, task: TaskContext, label: str
    ) -> npt.NDArray[np.uint32]:
        del task, label
        return np.asarray(batch.columns[-1].to_numpy(), np.uint32)
