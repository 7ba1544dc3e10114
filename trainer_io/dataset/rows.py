"""Parquet files as a data set: one sample is one row."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trainer_io.dataset.parquet import CACHE_BYTES, RowGroups, cumulative, part_of
from trainer_io.dataset.samples import Indices, checked_index
from trainer_io.dataset.source import FileSource, open_source

Row = dict[str, Any]


class ParquetDataset:
    """Rows of all `*.parquet` files below a path; samples are dictionaries by column.

        rows = ParquetDataset("fs3:///corpus/documents", columns=["path", "text"])
        rows[-1]["text"]

    Lists of numbers come as numpy arrays, everything else as plain Python values.

    Args:
        path: a local directory, a file, or an `fs3://` URL.
        columns: top-level columns to read; None for all.
        cache_bytes: bound of decoded row groups kept in memory, per process.
        source: where to read from, when it is not to be found by the URL.

    Raises:
        FileNotFoundError: no parquet file there.
        ValueError: a file is not parquet, or lacks a column.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        cache_bytes: int = CACHE_BYTES,
        source: FileSource | None = None,
    ) -> None:
        source, self.path = (source, os.fspath(path)) if source else open_source(path)
        self.row_groups = RowGroups(source, self.path, columns, cache_bytes)
        self._starts = cumulative(group.rows for group in self.row_groups.groups)
        self._row_bytes = np.array(
            [group.decoded_bytes // max(1, group.rows) for group in self.row_groups.groups],
            np.int64,
        )

    @property
    def fingerprint(self) -> str:
        return self.row_groups.fingerprint

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> Row:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Row]:
        """Rows in one batched read of the row groups that are not cached.

        Raises:
            OSError: a file is gone or has changed.
        """
        wanted = np.array([checked_index(index, len(self)) for index in indices], np.int64)
        groups = self._group_of(wanted)
        rows: list[Row] = [{}] * len(wanted)
        for number, table in self.row_groups.tables(groups.tolist()):
            (places,) = np.nonzero(groups == number)
            found = _rows(table.take(wanted[places] - self._starts[number]))
            for place, row in zip(places.tolist(), found, strict=True):
                rows[place] = row
        return rows

    def sizes_bytes(self, indices: Indices) -> npt.NDArray[np.int64]:
        return self._row_bytes[self._group_of(indices)]

    def _group_of(self, indices: Indices) -> Indices:
        return part_of(self._starts, indices)


def _rows(table: pa.Table) -> list[Row]:
    columns = {name: _values(table.column(name)) for name in table.column_names}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if not (_is_list(kind) and _is_number(kind.value_type)) or column.null_count:
        values: list[Any] = column.to_pylist()
        return values
    lists = column.combine_chunks()
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum(lists.value_lengths().to_numpy()).tolist()
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
