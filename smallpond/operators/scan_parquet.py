"""Parquet files as a source, whole or by row ranges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from smallpond.io import arrow, files
from smallpond.operators.engine import SqlEngine, literal, quote
from smallpond.operators.pieces import FilePiece, find_files
from smallpond.operators.rows import BatchRows, Rows, rebatched
from smallpond.operators.task import TaskContext

if TYPE_CHECKING:
    import pyarrow.dataset as ds  # imports pandas
    import pyarrow.parquet as pq

_FOOTER_THREADS = 16


@dataclasses.dataclass(frozen=True)
class ScanParquet:
    """Parquet files by path, directory, glob or URL.

    Attributes:
        paths: patterns as given by the user, made complete.
        recursive: `**` and directories reach into sub-directories.
        columns: columns to read, None for all.
        union_by_name: files may lack columns of others; those become NULL.
    """

    paths: tuple[str, ...]
    recursive: bool = False
    columns: tuple[str, ...] | None = None
    union_by_name: bool = False
    has_row_counts: bool = dataclasses.field(default=True, init=False)

    def pieces(self) -> list[FilePiece]:
        return find_files(self.paths, self.recursive)

    def counted(self, pieces: Sequence[FilePiece]) -> list[FilePiece]:
        """The pieces with their numbers of rows, from the footers."""
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            return list(pool.map(_with_rows, pieces))

    def rows(self, pieces: Sequence[FilePiece], task: TaskContext) -> Rows:
        return ParquetRows(self, list(pieces), task)


def _with_rows(piece: FilePiece) -> FilePiece:
    import pyarrow.parquet as pq

    if piece.rows is not None:
        return piece
    with files.files_for(piece.path).open_input(piece.path) as source:
        return dataclasses.replace(piece, rows=pq.read_metadata(source).num_rows)


class ParquetRows:
    """The rows of parquet files. DuckDB scans whole local files itself, with push-down."""

    def __init__(self, scan: ScanParquet, pieces: list[FilePiece], task: TaskContext) -> None:
        self._scan = scan
        self._pieces = pieces
        self._task = task

    def engine(self) -> SqlEngine | None:
        return None

    def name_in(self, engine: SqlEngine, uses: int) -> str:
        whole = all(piece.is_whole for piece in self._pieces)
        if whole and not any(files.is_remote(piece.path) for piece in self._pieces):
            return engine.view(self._duckdb_query())
        if whole:
            return self._projected(engine, engine.register(self._dataset()))
        return BatchRows(self._stream()).name_in(engine, uses)

    def reader(self, batch_rows: int) -> pa.RecordBatchReader:
        return rebatched(self._stream(), batch_rows)

    def _duckdb_query(self) -> str:
        paths = ", ".join(literal(piece.path) for piece in self._pieces)
        by_name = str(self._scan.union_by_name or self._scan.columns is not None).lower()
        return (
            f"select {self._column_list()} from read_parquet([{paths}], "
            f"union_by_name={by_name}, hive_partitioning=false)"
        )

    def _column_list(self) -> str:
        return "*" if self._scan.columns is None else ", ".join(map(quote, self._scan.columns))

    def _projected(self, engine: SqlEngine, name: str) -> str:
        if self._scan.columns is None:
            return name
        return engine.view(f"select {self._column_list()} from {name}")

    def _dataset(self) -> ds.Dataset:
        """Remote files as an Arrow dataset: coalesced reads, push-down of columns and filters."""
        import pyarrow.dataset as ds

        paths = [piece.path for piece in self._pieces]
        place = files.files_for(paths[0])
        assert isinstance(place, files.RemoteFiles)
        schema = self._schema() if self._scan.union_by_name else None
        return ds.dataset(
            [place.stripped(path) for path in paths],
            format="parquet",
            filesystem=place.filesystem,
            schema=schema,
        )

    def _schema(self) -> pa.Schema:
        """The schema of all pieces together, or of the first one where they must agree."""
        import pyarrow.parquet as pq

        pieces = self._pieces if self._scan.union_by_name else self._pieces[:1]
        schemas = []
        for piece in pieces:
            with files.files_for(piece.path).open_input(piece.path) as source:
                schemas.append(pq.read_schema(source).remove_metadata())
        schema = arrow.unify(schemas)
        if self._scan.columns is None:
            return schema
        return pa.schema([schema.field(name) for name in self._scan.columns])

    def _stream(self) -> pa.RecordBatchReader:
        schema = self._schema()
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        for piece in self._pieces:
            with (
                self._task.step("", f"reading {piece.path}"),
                files.files_for(piece.path).open_input(piece.path) as source,
            ):
                yield from _piece_batches(pq.ParquetFile(source), piece, schema)


def _piece_batches(
    file: pq.ParquetFile, piece: FilePiece, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Batches of the piece's rows; row groups outside are not read."""
    names = [name for name in file.schema_arrow.names if name in schema.names]
    first, left = piece.first_row, piece.rows
    if left is None:
        left = file.metadata.num_rows
    start = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if start + count > first and left > 0:
            table_rows = file.read_row_group(group, columns=names, use_threads=False)
            part = table_rows.slice(max(0, first - start), left)
            left -= part.num_rows
            for batch in part.to_batches():
                yield arrow.cast_batch(batch, schema)
        start += count
