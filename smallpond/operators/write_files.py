"""The sink of `write_parquet`: each partition becomes one file in the hidden output directory.

The directory is shown to readers by the commit that follows when all tasks are done (`io/commit`).
A partition without rows writes no file; the commit writes one empty file with the schema if all
are empty.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pyarrow as pa

from smallpond.io import arrow, files
from smallpond.operators.rows import BATCH_ROWS, Rows, SqlRows, gathered
from smallpond.operators.step import TaskOutput
from smallpond.operators.store import output_of
from smallpond.operators.task import TaskContext

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_ROW_GROUP_BYTES = 128 << 20  # a row group is held in memory until it is complete


@dataclasses.dataclass(frozen=True)
class ParquetOptions:
    """How parquet files are written; the defaults are the published ones."""

    compression: str = "ZSTD"
    compression_level: int | None = 3
    row_group_rows: int = 122_880
    dictionary: bool = False

    def writer(self, sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
        """A pyarrow writer with these options."""
        import pyarrow.parquet as pq

        compression = self.compression.lower()
        return pq.ParquetWriter(
            sink,
            schema,
            compression="none" if compression == "uncompressed" else compression,
            compression_level=self.compression_level if compression == "zstd" else None,
            use_dictionary=self.dictionary,
        )

    def for_duckdb(self) -> str:
        level = self.compression.upper() == "ZSTD" and self.compression_level is not None
        return ", ".join(
            [
                "format parquet",
                f"compression {self.compression.lower()}",
                f"row_group_size {self.row_group_rows}",
                *([f"compression_level {self.compression_level}"] if level else []),
            ]
        )


@dataclasses.dataclass(frozen=True)
class WriteParquet:
    """Writes one parquet file per partition.

    Attributes:
        directory: hidden directory of this run that takes the files of all attempts.
        options: how to write.
    """

    directory: str
    options: ParquetOptions

    def consume(self, rows: Rows, task: TaskContext, label: str) -> TaskOutput:
        import pyarrow.parquet as pq

        path = files.join(self.directory, f"{task.partition}.{task.attempt}.parquet")
        with task.step(label, f"writing {path}"):
            if isinstance(rows, SqlRows) and not files.is_remote(path):
                count = rows.write_parquet(path, self.options.for_duckdb())
                schema = arrow.large_schema(pq.read_schema(path))
            else:
                schema, count = self._write(rows.reader(BATCH_ROWS), path)
            if count == 0:
                files.files_for(path).remove_tree(path)
                return output_of([[]], schema)
            size_bytes = files.files_for(path).size_bytes(path)
        output = output_of([[]], schema, written=(path,))
        return dataclasses.replace(output, rows=count, size_bytes=size_bytes)

    def _write(self, reader: pa.RecordBatchReader, path: str) -> tuple[pa.Schema, int]:
        count = 0
        place = files.files_for(path)
        with (
            place.open_output(path) as sink,
            self.options.writer(sink, reader.schema) as writer,
        ):
            for batch in gathered(reader, self.options.row_group_rows, _ROW_GROUP_BYTES):
                writer.write_batch(batch, self.options.row_group_rows)
                count += batch.num_rows
        return reader.schema, count
