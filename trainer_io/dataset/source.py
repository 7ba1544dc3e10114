"""Where bytes come from: one small interface over local disks and fs3.

Everything above lists files once and then reads byte ranges of many files in one call.
"""

import fnmatch
import functools
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fs3._native import crc32c

if TYPE_CHECKING:
    from fs3.client.filesystem import FileSystem

Bytes = npt.NDArray[np.uint8]

Range = tuple[str, int, int]
"""(path, offset, length) in bytes."""


class FileEntry(NamedTuple):
    """A file below a listed directory; `name` is its path from there."""

    path: str
    name: str
    size_bytes: int


class FileSource(Protocol):
    """Lists and reads files. Picklable, usable after a fork, and by several threads."""

    def list_files(self, path: str) -> Iterator[FileEntry]:
        """All regular files below the directory `path`, or that file itself, in any order.

        Raises:
            FileNotFoundError: there is nothing at `path`.
        """

    def read_into(self, ranges: Sequence[Range], memory: Bytes) -> list[int]:
        """Fills `memory` with the ranges, one after the other as long as asked; bytes got of each.

        Raises:
            OSError: of the first file that cannot be read.
        """


class LocalSource:
    """Files of this machine, mounted file systems included."""

    def list_files(self, path: str) -> Iterator[FileEntry]:
        root = Path(path)
        if root.is_file():
            yield FileEntry(path, root.name, root.stat().st_size)
            return
        yield from _scan_local(path, "")

    def read_into(self, ranges: Sequence[Range], memory: Bytes) -> list[int]:
        filled, start = [], 0
        for path, offset, length in ranges:
            with open(path, "rb", buffering=0) as file:
                filled.append(_read_fully(file.fileno(), offset, memory[start : start + length]))
            start += length
        return filled


class Fs3Source:
    """Files of a cluster, read in batches by its native client.

    Args:
        filesystem: as `fs3.connect` gives it; it connects anew after a fork or when unpickled.
    """

    def __init__(self, filesystem: "FileSystem") -> None:
        self.filesystem = filesystem

    def list_files(self, path: str) -> Iterator[FileEntry]:
        status = self.filesystem.stat(path)
        if stat.S_ISREG(status.st_mode):
            yield FileEntry(path, os.path.basename(path), status.st_size)
            return
        yield from self._scan(path.rstrip("/"), "")

    def read_into(self, ranges: Sequence[Range], memory: Bytes) -> list[int]:
        return [len(part) for part in self.filesystem.read_many(ranges, into=memory)]

    def _scan(self, root: str, below: str) -> Iterator[FileEntry]:
        for entry in self.filesystem.scandir(f"{root}/{below}"):
            if entry.is_dir(follow_symlinks=False):
                yield from self._scan(root, f"{below}{entry.name}/")
            elif entry.is_file():
                name = below + entry.name
                yield FileEntry(f"{root}/{name}", name, entry.stat().st_size)


def open_source(path: str | os.PathLike[str]) -> tuple[FileSource, str]:
    """The source for a path or URL, and the path in it.

    `fs3://host:port/data` names a cluster, `fs3:///data` is on the configured one, anything else is
    a local path.
    """
    text = os.fspath(path)
    if not text.startswith("fs3:"):
        return LocalSource(), os.path.abspath(text)
    from fs3.client.path import split_url

    cluster, inside = split_url(text)
    return Fs3Source(_shared(cluster)), inside


def find_files(source: FileSource, path: str, pattern: str) -> list[FileEntry]:
    """Files whose own name matches `pattern`, in byte order of their names below `path`.

    The order is the same on every file system, so an index into it always means the same file.

    Raises:
        FileNotFoundError: nothing there, or nothing that matches.
    """
    found = [
        entry
        for entry in source.list_files(path)
        if fnmatch.fnmatchcase(os.path.basename(entry.name), pattern)
    ]
    if not found:
        raise FileNotFoundError(f"{path}: no file matches {pattern!r}")
    found.sort(key=lambda entry: os.fsencode(entry.name))
    return found


def fingerprint(entries: Sequence[FileEntry]) -> str:
    """CRC32C of names and sizes: enough to notice that a data set is not the one of before."""
    text = "".join(f"{entry.name}\0{entry.size_bytes}\n" for entry in entries)
    return f"{crc32c(os.fsencode(text)):08x}"


def read_ranges(source: FileSource, ranges: Sequence[Range]) -> list[Bytes]:
    """One array per range, all views of one buffer.

    Raises:
        OSError: a file cannot be read, or is shorter than the range.
    """
    if not ranges:
        return []
    memory = np.empty(sum(length for _, _, length in ranges), np.uint8)
    read_exactly(source, ranges, memory)
    ends = np.cumsum([length for _, _, length in ranges]).tolist()
    return [memory[end - r[2] : end] for r, end in zip(ranges, ends, strict=True)]


def read_exactly(source: FileSource, ranges: Sequence[Range], memory: Bytes) -> None:
    """Fills `memory` with the ranges one after the other; a short file is an `OSError`."""
    for (path, offset, length), got in zip(ranges, source.read_into(ranges, memory), strict=True):
        if got < length:
            raise OSError(
                f"{path}: {got} of {length} bytes at {offset}: the file became shorter since it "
                "was listed; open the data set again"
            )


@functools.cache
def _shared(cluster: str | None) -> "FileSystem":
    """One connection to a cluster for all data sets of a process."""
    import fs3

    return fs3.connect(cluster)


def _scan_local(root: str, below: str) -> Iterator[FileEntry]:
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _scan_local(root, f"{below}{entry.name}/")
            elif entry.is_file():
                yield FileEntry(entry.path, below + entry.name, entry.stat().st_size)


def _read_fully(descriptor: int, offset: int, memory: Bytes) -> int:
    got = 0
    while got < len(memory):
        count = os.preadv(descriptor, [memory[got:].data], offset + got)
        if count == 0:
            break
        got += count
    return got
