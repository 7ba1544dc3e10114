"""The data frame: a lazy plan with the published methods on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from smallpond.errors import PlanError
from smallpond.io import arrow
from smallpond.operators.by_hash import ByHash
from smallpond.operators.by_key import ByKey
from smallpond.operators.by_random import ByRandom
from smallpond.operators.filter_rows import FilterRows
from smallpond.operators.flat_map_rows import FlatMapRows
from smallpond.operators.limit import Limit
from smallpond.operators.map_batches import MapBatches
from smallpond.operators.map_rows import MapRows
from smallpond.operators.rows import BATCH_ROWS
from smallpond.operators.sql import Sql
from smallpond.operators.step import Step
from smallpond.operators.write_files import ParquetOptions
from smallpond.plan.relation import ByFiles, ByRows, Operator, Relation, Resources
from smallpond.session import Session, label
from smallpond.units import parse_bytes

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


def step_options(kwargs: dict[str, Any]) -> Resources:
    """The resources among the keyword arguments that every transformation takes.

    Raises:
        TypeError: an argument nobody knows.
    """
    cpus = int(kwargs.pop("cpu_limit", 1))
    gpus = float(kwargs.pop("gpu_limit", 0))
    memory = kwargs.pop("memory_limit", None)
    if kwargs:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(kwargs))}")
    if cpus < 1 or gpus < 0:
        raise PlanError("cpu_limit must be at least 1 and gpu_limit at least 0")
    memory_bytes = None if memory is None else parse_bytes(memory)
    return Resources(max(cpus, int(8 * gpus)), gpus, memory_bytes)


class DataFrame:
    """Rows in partitions, described but not computed until something asks for them."""

    def __init__(self, session: Session, plan: Relation, recompute: bool = False) -> None:
        self.session = session
        self.plan = plan
        session._add_user(self, plan)
        if recompute:
            session.recompute(plan)

    def __str__(self) -> str:
        return repr(self.plan)

    def __repr__(self) -> str:
        return f"DataFrame({self.plan!r}, {self.plan.partitions} partitions)"

    # Partitioning

    def repartition(
        self,
        npartitions: int,
        hash_by: str | Sequence[str] | None = None,
        by: str | None = None,
        by_rows: bool = False,
        **kwargs: Any,
    ) -> DataFrame:
        """Split the rows into `npartitions` partitions.

        Args:
            npartitions: how many; some may be empty.
            hash_by: columns or SQL expressions; rows with equal values meet in one partition.
            by: column or SQL expression that gives the number of the partition, 0 to n-1.
            by_rows: runs of rows of equal length. Otherwise whole files are dealt out: fewer files
                than partitions leave partitions empty.
        """
        if npartitions < 1:
            raise PlanError("npartitions must be at least 1")
        operator: Operator
        if by is not None:
            operator = ByKey(npartitions, by)
        elif hash_by is not None:
            keys = (hash_by,) if isinstance(hash_by, str) else tuple(hash_by)
            operator = ByHash(npartitions, keys)
        else:
            operator = (ByRows if by_rows else ByFiles)(npartitions)
        return self._next(operator, "repartition", kwargs)

    def random_shuffle(self, **kwargs: Any) -> DataFrame:
        """Put all rows in a random order, over as many partitions as there are now."""
        deal = ByRandom(self.plan.partitions, self.session.next_salt())
        dealt = self._next(deal, "random_shuffle", dict(kwargs))
        ordered = self._sql("select * from {0} order by random()")
        return dealt._next(ordered, "random_shuffle", kwargs)

    # Partition by partition

    def partial_sort(self, by: str | Sequence[str], **kwargs: Any) -> DataFrame:
        """Order each partition; items of `by` may end in `desc`, `nulls first` and so on."""
        keys = by if isinstance(by, str) else ", ".join(by)
        return self._next(self._sql(f"select * from {{0}} order by {keys}"), "partial_sort", kwargs)

    def filter(self, sql_or_func: str | Callable[[Row], Any], **kwargs: Any) -> DataFrame:
        """Keep the rows for which an SQL condition, or a function of the row, is true."""
        step: Step
        if isinstance(sql_or_func, str):
            step = self._sql(f"select * from {{0}} where ({sql_or_func})")
            return self._next(step, "filter", kwargs)
        step = FilterRows(_function(sql_or_func, "filter"))
        return self._next(step, "filter", kwargs, types_as_before=True)

    def map(
        self,
        sql_or_func: str | Callable[[Row], Row],
        *,
        schema: pa.Schema | None = None,
        **kwargs: Any,
    ) -> DataFrame:
        """Turn each row into another, by SQL expressions or by a function.

        Args:
            sql_or_func: a select list (`"a + b as c, d"`), or a function from dict to dict.
            schema: of the function's result; found out from the values if not given.
        """
        if isinstance(sql_or_func, str):
            return self._next(self._sql(f"select {sql_or_func} from {{0}}"), "map", kwargs)
        step = MapRows(_function(sql_or_func, "map"), _large(schema))
        return self._next(step, "map", kwargs, types_known=schema is not None)

    def flat_map(
        self,
        sql_or_func: str | Callable[[Row], Iterable[Row]],
        *,
        schema: pa.Schema | None = None,
        **kwargs: Any,
    ) -> DataFrame:
        """Turn each row into any number of rows, by SQL (`unnest`) or by a function."""
        if isinstance(sql_or_func, str):
            return self._next(self._sql(f"select {sql_or_func} from {{0}}"), "flat_map", kwargs)
        step = FlatMapRows(_function(sql_or_func, "flat_map"), _large(schema))
        return self._next(step, "flat_map", kwargs, types_known=schema is not None)

    def map_batches(
        self,
        func: Callable[[pa.Table], pa.Table],
        *,
        batch_size: int = BATCH_ROWS,
        **kwargs: Any,
    ) -> DataFrame:
        """Call a function with Arrow tables of `batch_size` rows; a partition's last is shorter."""
        if batch_size < 1:
            raise PlanError("batch_size must be at least 1")
        step = MapBatches(_function(func, "map_batches"), batch_size)
        return self._next(step, "map_batches", kwargs, types_known=False)

    def limit(self, limit: int) -> DataFrame:
        """Any `limit` rows, as one partition."""
        if limit < 0:
            raise PlanError("limit must not be negative")
        first = self._next(Limit(limit), "limit", {}, types_as_before=True)
        if self.plan.partitions == 1:
            return first
        gathered = first._next(ByFiles(1), "limit", {})
        return gathered._next(Limit(limit), "limit", {}, types_as_before=True)

    # Results

    def compute(self) -> None:
        """Compute the rows and keep them for what comes later."""
        self.session.compute([self.plan])

    def is_computed(self) -> bool:
        """True if the rows are kept, so that using them again costs nothing."""
        return self.session.is_computed(self.plan)

    def recompute(self) -> DataFrame:
        """Forget the rows that were kept; the next use computes them again."""
        self.session.recompute(self.plan)
        return self

    def count(self) -> int:
        """The number of rows."""
        return self.session.count(self.plan)

    def take(self, limit: int) -> list[Row]:
        """The first `limit` rows, in order of partition."""
        if self.is_computed():
            return _rows(self.session.collect(self.plan, limit))
        return self.limit(limit).take_all()

    def take_all(self) -> list[Row]:
        """All rows, in order of partition."""
        return _rows(self.session.collect(self.plan))

    def to_arrow(self) -> pa.Table:
        """All rows, in order of partition, as an Arrow table."""
        return self.session.collect(self.plan)

    def to_pandas(self) -> pd.DataFrame:
        """All rows, in order of partition, as a pandas data frame with a fresh index."""
        table = arrow.whole_decimals_as_integers(self.session.collect(self.plan))
        frame: pd.DataFrame = table.to_pandas()
        return frame

    def write_parquet(self, path: str, mode: str = "append", **kwargs: Any) -> None:
        """Write one parquet file per partition that has rows; waits until all are visible.

        Args:
            path: directory, local or URL.
            mode: with files of earlier runs there: `append` adds to them, `overwrite` takes their
                place, `error` refuses.
            kwargs: parquet_compression, parquet_compression_level, parquet_row_group_size,
                parquet_dictionary_encoding.
        """
        self.session.write(self.plan, path, mode, _parquet_options(kwargs))

    def _sql(self, statement: str) -> Sql:
        return Sql((statement,), self.session.next_salt())

    def _next(
        self,
        operator: Operator,
        name: str,
        kwargs: dict[str, Any],
        types_known: bool = True,
        types_as_before: bool = False,
    ) -> DataFrame:
        """A frame of one more operator over this one."""
        relation = Relation(
            operator,
            [self.plan],
            label=label(name),
            resources=step_options(kwargs),
            has_known_schema=self.plan.has_known_schema if types_as_before else types_known,
        )
        return DataFrame(self.session, relation)


def _function(given: Any, method: str) -> Any:
    if not callable(given):
        raise PlanError(f"{method} takes an SQL text or a function, not {type(given).__name__}")
    return given


def _large(schema: pa.Schema | None) -> pa.Schema | None:
    return None if schema is None else arrow.large_schema(schema)


def _rows(table: pa.Table) -> list[Row]:
    return [row for batch in table.to_batches() for row in arrow.columns_to_rows(batch)]


def _parquet_options(kwargs: dict[str, Any]) -> ParquetOptions:
    defaults = ParquetOptions()
    options = ParquetOptions(
        compression=kwargs.pop("parquet_compression", defaults.compression),
        compression_level=kwargs.pop("parquet_compression_level", defaults.compression_level),
        row_group_rows=kwargs.pop("parquet_row_group_size", defaults.row_group_rows),
        dictionary=kwargs.pop("parquet_dictionary_encoding", defaults.dictionary),
    )
    if kwargs:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(kwargs))}")
    return options
