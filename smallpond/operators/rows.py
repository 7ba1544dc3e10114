"""Rows on their way through a task, in one of three forms, each able to become the others.

A step asks for the form it works on: a name to select from in a DuckDB instance, or Arrow batches.
Rows can be consumed once, except `StoredRows`, whose source stays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from smallpond.io import arrow, segments
from smallpond.operators.engine import SqlEngine
from smallpond.operators.task import TaskContext

_HELD_BYTES_MAX = 64 << 20
_FUNCTION_ROWS = 8192
_FUNCTION_BYTES = 8 << 20  # as Arrow; some times that as Python objects
BATCH_ROWS = 122_880  # DuckDB's row group, and the default of `map_batches`


class Rows(Protocol):
    """Rows of one partition."""

    def engine(self) -> SqlEngine | None:
        """The DuckDB instance they already live in, if any."""

    def name_in(self, engine: SqlEngine, uses: int) -> str:
        """A name to select from in `engine`, readable `uses` times with the same rows each time."""

    def reader(self, batch_rows: int) -> pa.RecordBatchReader:
        """The rows as a stream of batches of about `batch_rows`, in order."""


class SqlRows:
    """A query in a DuckDB instance, not run yet.

    One that draws random numbers (`seed` is given) is never merged into another query, which could
    change for which rows it draws: it is run on its own, with the generator set just before.
    """

    def __init__(
        self,
        engine: SqlEngine,
        query: str,
        task: TaskContext,
        label: str,
        detail: str,
        seed: float | None = None,
    ) -> None:
        self._engine = engine
        self.query = query
        self._task = task
        self._label = label
        self._detail = detail
        self._seed = seed

    def engine(self) -> SqlEngine | None:
        return self._engine

    def name_in(self, engine: SqlEngine, uses: int) -> str:
        if engine is not self._engine:
            return BatchRows(self.reader(BATCH_ROWS)).name_in(engine, uses)
        with self._task.step(self._label, self._detail):
            self._set_generator()
            is_merged = uses <= 1 and self._seed is None
            return engine.view(self.query) if is_merged else engine.table(self.query)

    def _set_generator(self) -> None:
        if self._seed is not None:
            self._engine.seed(self._seed)

    def types(self) -> list[str]:
        """The DuckDB types of the columns."""
        with self._task.step(self._label, self._detail):
            return [str(kind) for kind in self._engine.query(self.query).types]

    def over(self, query: str) -> SqlRows:
        """A query over this one, which it names `{0}`."""
        query = query.replace("{0}", f"({self.query})")
        return SqlRows(self._engine, query, self._task, self._label, self._detail, self._seed)

    def reader(self, batch_rows: int) -> pa.RecordBatchReader:
        with self._task.step(self._label, self._detail):
            self._set_generator()
            reader = self._engine.query(self.query).to_arrow_reader(batch_rows)
        schema = arrow.large_schema(reader.schema)
        return pa.RecordBatchReader.from_batches(schema, self._batches(reader, schema))

    def _batches(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        while True:
            with self._task.step(self._label, self._detail):
                batch = next(iter(reader), None)
            if batch is None:
                return
            yield arrow.cast_batch(batch, schema)

    def write_parquet(self, path: str, options: str) -> int:
        """Let DuckDB write the file, with all its threads; returns the number of rows."""
        with self._task.step(self._label, self._detail):
            self._set_generator()
            copied = self._engine.connection.execute(
                f"copy ({self.query}) to '{path.replace(chr(39), chr(39) * 2)}' ({options})"
            ).fetchall()
        return int(copied[0][0])


class BatchRows:
    """A stream of Arrow batches, produced by Python as it is read."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self.schema = reader.schema

    def engine(self) -> SqlEngine | None:
        return None

    def name_in(self, engine: SqlEngine, uses: int) -> str:
        if not self.schema.names:
            raise ValueError(
                "a function without schema= returned no rows, so that their columns are unknown; "
                "give the step schema=pyarrow.schema([...])"
            )
        name = engine.register(self._reader)
        return name if uses <= 1 else engine.table(f"select * from {name}")

    def reader(self, batch_rows: int) -> pa.RecordBatchReader:
        return rebatched(self._reader, batch_rows)


class StoredRows:
    """Segments that earlier tasks left."""

    def __init__(
        self, parts: Sequence[segments.Segment], schema: pa.Schema, task: TaskContext
    ) -> None:
        self._parts = parts
        self._schema = schema
        self._task = task

    def engine(self) -> SqlEngine | None:
        return None

    def name_in(self, engine: SqlEngine, uses: int) -> str:
        name = engine.register(self._stream())
        return name if uses <= 1 else engine.table(f"select * from {name}")

    def reader(self, batch_rows: int) -> pa.RecordBatchReader:
        return rebatched(self._stream(), batch_rows)

    def _stream(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with self._task.step("", "reading the rows of an earlier step"):
            for batch in segments.read_segments(self._parts):
                yield arrow.cast_batch(batch, self._schema)


def for_row_functions(rows: Rows) -> pa.RecordBatchReader:
    """The rows in batches that stay small as Python objects too, however wide a row is."""
    reader = rows.reader(_FUNCTION_ROWS)
    pieces = (piece for batch in reader for piece in cut(batch, _FUNCTION_BYTES))
    return pa.RecordBatchReader.from_batches(reader.schema, pieces)


def cut(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch of at most about `bytes_max` bytes, but at least one row."""
    if batch.num_rows == 0:
        return
    count = -(-batch.nbytes // bytes_max)
    rows = max(1, batch.num_rows // max(1, count))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def gathered(
    reader: pa.RecordBatchReader, rows_max: int, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Batches merged until they have `rows_max` rows or about `bytes_max` bytes."""
    pending: list[pa.RecordBatch] = []
    rows, size_bytes = 0, 0
    for batch in reader:
        for piece in cut(batch, bytes_max):
            is_full = rows + piece.num_rows > rows_max or size_bytes + piece.nbytes > bytes_max
            if pending and is_full:
                yield _merged(pending)
                pending, rows, size_bytes = [], 0, 0
            pending.append(piece)
            rows += piece.num_rows
            size_bytes += piece.nbytes
    if pending:
        yield _merged(pending)


def rebatched(reader: pa.RecordBatchReader, batch_rows: int) -> pa.RecordBatchReader:
    """The same rows in batches of exactly `batch_rows`, the last one shorter."""
    return pa.RecordBatchReader.from_batches(reader.schema, _rebatch(reader, batch_rows))


def _rebatch(reader: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in reader:
        rest = batch
        while rows + rest.num_rows >= batch_rows:
            take = batch_rows - rows
            pending.append(rest.slice(0, take))
            yield _merged(pending)
            pending, rows = [], 0
            rest = rest.slice(take)
        if rest.num_rows:
            pending.append(rest)
            rows += rest.num_rows
    if pending:
        yield _merged(pending)


def _merged(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def stream_of(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema | None, hint: str
) -> pa.RecordBatchReader:
    """A reader over batches whose schema is known only by looking at them.

    Batches are held back, up to 64 MiB, while a column has seen nothing but NULL, so that its type
    is that of its first value, wherever in the partition that is.

    Raises:
        ValueError: a later batch has another type for a column, or a column more.
    """
    if schema is not None:
        return pa.RecordBatchReader.from_batches(
            schema, (arrow.cast_batch(batch, schema) for batch in batches)
        )
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    known = pa.schema([])
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        known = arrow.unify([known, batch.schema])
        typed = not any(pa.types.is_null(field.type) for field in known)
        if typed or held_bytes > _HELD_BYTES_MAX:
            break
    rest = itertools.chain(held, batches)
    return pa.RecordBatchReader.from_batches(known, _conforming(rest, known, hint))


def _conforming(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, hint: str
) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches:
        if arrow.unify([schema, batch.schema]) != schema:
            raise ValueError(
                f"{hint}: rows from {row} on have the types {_types(batch.schema)}, earlier rows "
                f"{_types(schema)}; give schema=pyarrow.schema([...])"
            )
        yield arrow.cast_batch(batch, schema)
        row += batch.num_rows


def _types(schema: pa.Schema) -> str:
    return "{" + ", ".join(f"{field.name}: {field.type}" for field in schema) + "}"
