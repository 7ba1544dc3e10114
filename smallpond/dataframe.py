"""The data frame: a lazy plan with the published methods on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from smallpond.errors import PlanError
from smallpond.io import arrow
from smallpond.operators.by_hash import ByHash
from smallpond.operators.by_key import ByKey
from smallpond.operators.by_random import ByRandom
from smallpond.operators.engine import quote
from smallpond.operators.filter_rows import FilterRows
from smallpond.operators.flat_map_rows import FlatMapRows
from smallpond.operators.limit import Limit
from smallpond.operators.map_batches import MapBatches
from smallpond.operators.map_rows import MapRows
from smallpond.operators.rows import BATCH_ROWS
from smallpond.operators.sql import Sql
from smallpond.operators.step import Step
from smallpond.operators.write_files import ParquetOptions
from smallpond.plan.aggregate import aggregated_relation, distinct_relation
from smallpond.plan.join import hash_keys, joined_relation
from smallpond.plan.relation import ByFiles, ByRows, Operator, Relation, Resources, Union
from smallpond.plan.sort import Builder, sorted_relation, split_terms
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

    # Whole frames

    def sort(
        self, by: str | Sequence[str], npartitions: int | None = None, **kwargs: Any
    ) -> DataFrame:
        """Order all rows: partition i holds what comes before partition i+1, each in order.

        Args:
            by: columns or expressions, each with `asc` or `desc` and `nulls first` or `last`.
            npartitions: of the result; as many as now, or one per core for an unpartitioned frame.
        """
        build = self._builder("sort", kwargs)
        readers = 2 * self.session.config.cpus
        terms = split_terms(by) if isinstance(by, str) else list(by)
        count = self._partitions_of_result(npartitions)
        return DataFrame(self.session, sorted_relation(self.plan, terms, count, readers, build))

    def join(
        self,
        other: DataFrame,
        on: str | Sequence[str] | None = None,
        how: str = "inner",
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        broadcast: str | None = None,
        npartitions: int | None = None,
        **kwargs: Any,
    ) -> DataFrame:
        """Join whole frames on equal columns.

        Args:
            on: columns of both sides, which appear once in the result.
            how: inner, left, right, full, semi, anti or cross.
            left_on, right_on: instead of `on`, columns of each side, which both appear.
            broadcast: "left" or "right": give that side whole to every task, and move no row of
                the other. For sides that fit into the memory of a task.
            npartitions: of the result of a join by hash.
        """
        left, right = (on, on) if on is not None else (left_on, right_on)
        if (left is None or right is None) and how != "cross":
            raise PlanError("join needs on=, or left_on= and right_on=")
        keys = _pairs(left or (), right or ())
        by_hash = how != "cross" and broadcast is None
        hashed = hash_keys(keys, self.schema, other.schema) if by_hash else []
        counts = [n for n in (self.plan.partitions, other.plan.partitions) if n > 1]
        count = npartitions or max(counts, default=1)
        build = self._builder("join", kwargs)
        return DataFrame(
            self.session,
            joined_relation(self.plan, other.plan, keys, hashed, how, count, broadcast, build),
        )

    def group_by(self, *by: str) -> GroupedFrame:
        """Groups of rows with equal columns or SQL expressions, for `agg`."""
        return GroupedFrame(self, by)

    def agg(self, *aggregates: str, **named: str) -> DataFrame:
        """One row of aggregates over all rows, such as `agg("count(*) as n", total="sum(x)")`."""
        return self.group_by().agg(*aggregates, *_named(named))

    def distinct(
        self, on: str | Sequence[str] | None = None, npartitions: int | None = None, **kwargs: Any
    ) -> DataFrame:
        """Each distinct row once, or one row for each distinct value of the columns `on`."""
        build = self._builder("distinct", kwargs)
        keys = None if on is None else [quote(name) for name in _names(on)]
        columns = [quote(name) for name in self.columns] if keys is None else []
        count = npartitions or self.plan.partitions
        return DataFrame(self.session, distinct_relation(self.plan, columns, keys, count, build))

    def union(self, *others: DataFrame) -> DataFrame:
        """The rows of all frames, partitions behind each other, columns matched by name."""
        inputs = [self.plan, *(other.plan for other in others)]
        return DataFrame(self.session, Relation(Union(), inputs, label=label("union")))

    def select(self, *columns: str, **kwargs: Any) -> DataFrame:
        """Some columns or SQL expressions (`"a + b as c"`), by name as they are or as text."""
        names = set(self.columns)
        items = [quote(c) if c in names else c for c in columns]
        return self._next(self._sql(f"select {', '.join(items)} from {{0}}"), "select", kwargs)

    def with_columns(self, **columns: str) -> DataFrame:
        """Add columns made by SQL expressions, or put them in the place of those of that name."""
        kept = [
            f"({columns[name]}) as {quote(name)}" if name in columns else quote(name)
            for name in self.columns
        ]
        added = [
            f"({text}) as {quote(name)}"
            for name, text in columns.items()
            if name not in self.columns
        ]
        items = ", ".join([*kept, *added])
        return self._next(self._sql(f"select {items} from {{0}}"), "with_columns", {})

    def rename(self, names: Mapping[str, str]) -> DataFrame:
        """Give columns other names: `rename({"old": "new"})`."""
        self._check_columns(names)
        items = ", ".join(f"{quote(c)} as {quote(names.get(c, c))}" for c in self.columns)
        return self._next(self._sql(f"select {items} from {{0}}"), "rename", {})

    def drop(self, *columns: str) -> DataFrame:
        """Leave columns out."""
        self._check_columns(columns)
        items = ", ".join(quote(c) for c in self.columns if c not in columns)
        return self._next(self._sql(f"select {items} from {{0}}"), "drop", {})

    def sample(self, fraction: float) -> DataFrame:
        """Each row with probability `fraction`; the same rows each time."""
        if not 0 <= fraction <= 1:
            raise PlanError("fraction must be between 0 and 1")
        return self._next(
            self._sql(f"select * from {{0}} where random() < {float(fraction)!r}"), "sample", {}
        )

    # Description

    @property
    def schema(self) -> pa.Schema:
        """Names and types; computes rows only below a function without declared schema."""
        return self.session.schema(self.plan)

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def dtypes(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self.schema}

    @property
    def num_partitions(self) -> int:
        return self.plan.partitions

    def explain(self) -> str:
        """The stages this frame needs, what they read, do and hand on."""
        return self.session.explain(self.plan)

    def show(self, limit: int = 20) -> None:
        """Print the first rows as a table."""
        from rich.console import Console
        from rich.table import Table

        rows = self.take(limit)
        table = Table(*(rows[0] if rows else self.columns))
        for row in rows:
            table.add_row(*("NULL" if value is None else str(value) for value in row.values()))
        Console().print(table)

    # Results

    def cache(self) -> DataFrame:
        """Compute the rows now, keep them, and return this frame."""
        self.compute()
        return self

    def iter_batches(self, batch_size: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """All rows, in order of partition, as Arrow tables of `batch_size` rows, one at a time."""
        yield from self.session.batches(self.plan, batch_size)

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

    def _builder(self, name: str, kwargs: dict[str, Any]) -> Builder:
        return Builder(label(name), step_options(kwargs), self.session.next_salt)

    def _partitions_of_result(self, wanted: int | None) -> int:
        if wanted is not None and wanted < 1:
            raise PlanError("npartitions must be at least 1")
        present = self.plan.partitions
        return wanted or (present if present > 1 else self.session.config.cpus)

    def _check_columns(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise PlanError(f"no column {', '.join(missing)}; there are {', '.join(self.columns)}")

    def _sql(self, statement: str) -> Sql:
        return Sql((statement,), self.session.next_salt())

    def write_parquet_lazy(self, path: str, mode: str = "append", **kwargs: Any) -> LazyWrite:
        """A frame that is written like `write_parquet` when it, or `Session.wait`, computes it."""
        return LazyWrite(self, path, mode, _parquet_options(kwargs))

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


class LazyWrite(DataFrame):
    """The rows of another frame, and the order to write them."""

    def __init__(self, frame: DataFrame, path: str, mode: str, options: ParquetOptions) -> None:
        super().__init__(frame.session, frame.plan)
        self._write = (path, mode, options)
        self._is_written = False

    def compute(self) -> None:
        """Write, the first time."""
        if not self._is_written:
            self.session.write(self.plan, *self._write)
            self._is_written = True

    def is_computed(self) -> bool:
        return self._is_written


class GroupedFrame:
    """Groups of rows, waiting for `agg`."""

    def __init__(self, frame: DataFrame, by: Sequence[str]) -> None:
        self._frame = frame
        self._by = tuple(by)

    def agg(self, *aggregates: str, npartitions: int | None = None, **named: str) -> DataFrame:
        """One row per group: the keys, then the aggregates.

        Args:
            aggregates: SQL, such as `"count(*) as n"`.
            npartitions: of the result; as many as the frame has.
            named: SQL by name of the column, such as `total="sum(x)"`.
        """
        frame = self._frame
        items = [*aggregates, *_named(named)]
        if not items and not self._by:
            raise PlanError("agg needs at least one aggregate")
        build = frame._builder("agg", {})
        count = npartitions or frame.plan.partitions
        relation = aggregated_relation(frame.plan, self._by, items, count, build)
        return DataFrame(frame.session, relation)


def _function(given: Any, method: str) -> Any:
    if not callable(given):
        raise PlanError(f"{method} takes an SQL text or a function, not {type(given).__name__}")
    return given


def _named(expressions: Mapping[str, str]) -> list[str]:
    return [f"{text} as {quote(name)}" for name, text in expressions.items()]


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _pairs(left: str | Sequence[str], right: str | Sequence[str]) -> list[tuple[str, str]]:
    if len(_names(left)) != len(_names(right)):
        raise PlanError("join needs as many columns on the left as on the right")
    return list(zip(_names(left), _names(right), strict=True))


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
