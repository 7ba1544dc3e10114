"""What a data set consists of, found out from names, sizes and parquet footers alone."""

import collections
import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trainer_io.dataset.files import FileDataset
from trainer_io.dataset.parquet import RowGroups
from trainer_io.dataset.source import FileSource, open_source


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """`values` counts the elements of lists; for other columns it is the number of rows."""

    name: str
    type: str
    stored_bytes: int
    values: int


@dataclass(frozen=True, slots=True)
class ParquetInfo:
    """Row group sizes are decoded bytes: what the cache of a data set must hold."""

    path: str
    fingerprint: str
    files: int
    stored_bytes: int
    rows: int
    row_groups: int
    row_group_bytes_median: int
    row_group_bytes_max: int
    columns: tuple[ColumnInfo, ...]


@dataclass(frozen=True, slots=True)
class FilesInfo:
    path: str
    fingerprint: str
    files: int
    stored_bytes: int
    file_bytes_median: int
    file_bytes_max: int
    extensions: dict[str, int]


def dataset_info(
    path: str | os.PathLike[str], source: FileSource | None = None
) -> ParquetInfo | FilesInfo:
    """Parquet where there are `*.parquet` files, else plain files.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: a parquet file cannot be read.
    """
    source, inside = (source, os.fspath(path)) if source else open_source(path)
    if any(entry.name.endswith(".parquet") for entry in source.list_files(inside)):
        return _parquet(RowGroups(source, inside, None, cache_bytes=1), inside)
    return _files(FileDataset(inside, source=source))


def _parquet(row_groups: RowGroups, path: str) -> ParquetInfo:
    sizes = [group.decoded_bytes for group in row_groups.groups] or [0]
    return ParquetInfo(
        path=path,
        fingerprint=row_groups.fingerprint,
        files=row_groups.files,
        stored_bytes=row_groups.stored_bytes,
        rows=sum(group.rows for group in row_groups.groups),
        row_groups=len(row_groups.groups),
        row_group_bytes_median=int(np.median(sizes)),
        row_group_bytes_max=max(sizes),
        columns=tuple(_column(row_groups, field) for field in row_groups.schema),
    )


def _column(row_groups: RowGroups, field: pa.Field) -> ColumnInfo:
    chunks = [chunk for group in row_groups.groups for chunk in group.chunks(field.name)]
    return ColumnInfo(
        name=field.name,
        type=str(field.type),
        stored_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        values=sum(chunk.num_values for chunk in chunks),
    )


def _files(data: FileDataset) -> FilesInfo:
    sizes = data.sizes_bytes(np.arange(len(data)))
    endings = collections.Counter(os.path.splitext(name)[1] or "none" for name in data.names)
    return FilesInfo(
        path=data.path,
        fingerprint=data.fingerprint,
        files=len(data),
        stored_bytes=data.total_bytes,
        file_bytes_median=int(np.median(sizes)),
        file_bytes_max=int(sizes.max()),
        extensions=dict(endings.most_common()),
    )
