"""Fixed-length windows over a column of token lists: the usual input of a language model.

The lists of all rows of all files, one after the other, are one stream of tokens; window i is the
stream's part from i * window on. Rows and row groups may end anywhere. Where each row group's
tokens start is known from the footers alone, because parquet counts the values of a column.
"""

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trainer_io.dataset.parquet import CACHE_BYTES, RowGroup, RowGroups, cumulative, part_of
from trainer_io.dataset.samples import Indices, checked_index
from trainer_io.dataset.source import FileSource, open_source

Tokens = npt.NDArray[np.int64]


class TokenDataset:
    """Windows of `window` tokens; samples are int64 arrays. The stream's last part, shorter than a
    window, is left out.

        windows = TokenDataset("fs3:///corpus/tokens", column="tokens", window=129)
        inputs, targets = windows[0][:-1], windows[0][1:]

    Args:
        path: a local directory, a file, or an `fs3://` URL, with `*.parquet` files.
        column: a column of lists of integers, without nulls and without empty lists.
        window: tokens per sample.
        cache_bytes: bound of decoded row groups kept in memory, per process.
        source: where to read from, when it is not to be found by the URL.

    Raises:
        FileNotFoundError: no parquet file there.
        ValueError: a file is not parquet, or the column is missing or of another type.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        column: str = "tokens",
        window: int,
        cache_bytes: int = CACHE_BYTES,
        source: FileSource | None = None,
    ) -> None:
        if window < 1:
            raise ValueError(f"a window has at least one token, not {window}")
        source, self.path = (source, os.fspath(path)) if source else open_source(path)
        self.column = column
        self.window = window
        self.row_groups = RowGroups(source, self.path, [column], cache_bytes)
        _require_token_lists(self.row_groups.schema.field(column))
        self._starts = cumulative(_value_count(g, column) for g in self.row_groups.groups)

    @property
    def fingerprint(self) -> str:
        return f"{self.row_groups.fingerprint}/{self.window}"

    @property
    def tokens(self) -> int:
        """Length of the stream, the part that is left out included."""
        return int(self._starts[-1])

    def __len__(self) -> int:
        return self.tokens // self.window

    def __getitem__(self, index: int) -> Tokens:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Tokens]:
        """Windows in one batched read of the row groups that are not cached.

        Raises:
            OSError: a file is gone or has changed.
            ValueError: the column has nulls or empty lists.
        """
        begins = np.array([checked_index(i, len(self)) for i in indices], np.int64) * self.window
        first = self._group_of(begins)
        last = self._group_of(begins + self.window - 1)
        windows = np.empty((len(begins), self.window), np.int64)
        touched = sorted({g for a, b in zip(first, last, strict=True) for g in range(a, b + 1)})
        for number, table in self.row_groups.tables(touched):
            flat = self._flat(number, table)
            for place in np.flatnonzero((first <= number) & (number <= last)).tolist():
                self._copy(flat, number, int(begins[place]), windows[place])
        return list(windows)

    def sizes_bytes(self, indices: Indices) -> npt.NDArray[np.int64]:
        return np.full(len(indices), self.window * 8, np.int64)

    def _group_of(self, token: Indices) -> Indices:
        return part_of(self._starts, token)

    def _flat(self, number: int, table: pa.Table) -> npt.NDArray[np.integer]:
        values = table.column(0).combine_chunks().flatten()
        expected = self._starts[number + 1] - self._starts[number]
        if len(values) != expected or values.null_count:
            path = self.row_groups.groups[number].entry.path
            raise ValueError(
                f"{path}: column {self.column!r} has nulls or empty lists; write it without them"
            )
        flat: npt.NDArray[np.integer] = values.to_numpy()
        return flat

    def _copy(self, flat: npt.NDArray[np.integer], number: int, begin: int, window: Tokens) -> None:
        """Copies the part of the stream from `begin` that lies in this row group."""
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        low, high = max(begin, start), min(begin + self.window, end)
        window[low - begin : high - begin] = flat[low - start : high - start]


def _require_token_lists(field: pa.Field) -> None:
    kind = field.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(
        kind.value_type
    ):
        raise ValueError(f"column {field.name!r} is {kind}; windows need lists of integers")


def _value_count(group: RowGroup, column: str) -> int:
    (leaf,) = group.chunks(column)
    return int(leaf.num_values)
