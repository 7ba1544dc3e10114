"""A directory of files as a data set: one sample is the content of one file."""

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trainer_io.dataset.samples import Indices, checked_index
from trainer_io.dataset.source import FileSource, find_files, fingerprint, open_source, read_ranges


class FileDataset:
    """Files below a directory, in byte order of their names; samples are `bytes`.

        images = FileDataset("fs3:///images", pattern="*.jpg")
        images.names[3], images[3]

    Args:
        path: a local directory or an `fs3://` URL.
        pattern: of the files' own names, as in a shell.
        source: where to read from, when it is not to be found by the URL.

    Raises:
        FileNotFoundError: no file matches.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pattern: str = "*",
        source: FileSource | None = None,
    ) -> None:
        self.source, self.path = (source, os.fspath(path)) if source else open_source(path)
        entries = find_files(self.source, self.path, pattern)
        self.fingerprint = fingerprint(entries)
        self.names = [entry.name for entry in entries]
        self._paths = [entry.path for entry in entries]
        self._sizes = np.array([entry.size_bytes for entry in entries], np.int64)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> bytes:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[bytes]:
        """Files in one batched read.

        Raises:
            OSError: a file is gone or has become shorter.
        """
        wanted = [checked_index(index, len(self)) for index in indices]
        ranges = [(self._paths[index], 0, int(self._sizes[index])) for index in wanted]
        return [part.tobytes() for part in read_ranges(self.source, ranges)]

    def sizes_bytes(self, indices: Indices) -> npt.NDArray[np.int64]:
        return self._sizes[indices]

    @property
    def total_bytes(self) -> int:
        return int(self._sizes.sum())
