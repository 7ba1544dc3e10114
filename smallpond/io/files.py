"""Files wherever they are: local paths and `scheme://` URLs behind one small interface.

A path keeps its URL form everywhere in the engine; only the two classes below know how to reach it.
`LocalFiles` uses the operating system directly (memory maps, rename that exchanges directories),
`RemoteFiles` uses whatever fsspec file system serves the scheme (`fs3://`, `s3://`, `memory://`).
Both pass the same contract suite.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob as globbing
import os
import re
import shutil
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

_URL = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]+)://")
_ROOT = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+://(?:[^/]*:\d+(?=/|$))?")
_GLOB = re.compile(r"[*?\[]")
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class Files(Protocol):
    """What the engine asks of a place that holds files. Paths are complete, scheme included."""

    def find(self, pattern: str, recursive: bool) -> list[str]:
        """Files that match a path, a glob or lie in a directory, sorted; hidden ones left out."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list_names(self, directory: str) -> list[str]:
        """Names of all entries of a directory, hidden ones included; empty if it is missing."""

    def size_bytes(self, path: str) -> int: ...

    def make_directory(self, path: str) -> None:
        """Create it and its parents; it may exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a file or a directory with all it holds; it may be missing."""

    def rename(self, source: str, target: str) -> None:
        """Move a file over a possibly existing file, or a directory onto a free or empty one."""

    def exchange_directories(self, one: str, other: str) -> bool:
        """Swap two directories in one step; False where the file system cannot."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Open for random reads; zero-copy where possible."""

    def open_output(self, path: str) -> pa.NativeFile:
        """Create or truncate for sequential writes; the file is complete once closed."""


def is_remote(path: str) -> bool:
    """True for a URL that the operating system cannot open itself."""
    match = _URL.match(path)
    return match is not None and match.group(1) != "file"


def join(directory: str, *names: str) -> str:
    """`directory` with names below it; no doubled slash after a root."""
    return directory + ("" if directory.endswith("/") else "/") + "/".join(names)


def parent_and_name(path: str) -> tuple[str, str]:
    """Split off the last component; the parent of a scheme's root is that root."""
    head, _, name = path.rstrip("/").rpartition("/")
    if head.endswith((":/", "://")):
        head += "/"
    return (head or "/"), name


def complete_path(path: str | os.PathLike[str]) -> str:
    """The form the engine keeps: a URL as it is, a local path made absolute."""
    text = os.fspath(path)
    if is_remote(text):
        return text
    return os.path.abspath(os.path.expanduser(text.removeprefix("file://")))


def files_for(path: str) -> Files:
    """The file system that serves `path`."""
    match = _ROOT.match(path)
    return _files_below(match.group(0) if match else "")


@functools.cache
def _files_below(root: str) -> Files:
    return RemoteFiles(root) if root else LocalFiles()


def _is_hidden(path: str, root: str) -> bool:
    """Names that start with a dot or underscore below `root` are not data."""
    below = path[len(root) :].strip("/").split("/")
    return any(name.startswith((".", "_")) for name in below if name)


def _fixed_part(pattern: str) -> str:
    """The leading components of a glob without wildcards; hidden names there were asked for."""
    parts = pattern.split("/")
    fixed: list[str] = []
    for part in parts[:-1]:
        if _GLOB.search(part):
            break
        fixed.append(part)
    return "/".join(fixed)


class LocalFiles:
    """Files that the operating system serves, a mounted fs3 included."""

    def find(self, pattern: str, recursive: bool) -> list[str]:
        if os.path.isfile(pattern):
            return [pattern]
        if os.path.isdir(pattern):
            pattern = os.path.join(globbing.escape(pattern), "**" if recursive else "*")
        elif not _GLOB.search(pattern):
            return []
        root = _fixed_part(pattern)
        found = globbing.glob(pattern, recursive=recursive)
        return sorted(p for p in found if os.path.isfile(p) and not _is_hidden(p, root))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def size_bytes(self, path: str) -> int:
        return os.path.getsize(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def exchange_directories(self, one: str, other: str) -> bool:
        rename2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if rename2 is None:
            return False
        names = os.fsencode(one), os.fsencode(other)
        return bool(rename2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)

    def open_input(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        if os.path.getsize(path) == 0:
            return pa.BufferReader(b"")
        return pa.memory_map(path)

    def open_output(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.OSFile(path, "wb")


class RemoteFiles:
    """Files behind an fsspec file system.

    Args:
        root: `scheme://`, with the authority if that names a server (`fs3://host:7000`).
    """

    def __init__(self, root: str) -> None:
        self.root = root

    @functools.cached_property
    def filesystem(self) -> Any:
        from fsspec.core import url_to_fs

        return url_to_fs(f"{self.root}/")[0]

    def stripped(self, path: str) -> str:
        """The path as the fsspec object itself writes it."""
        return str(self.filesystem._strip_protocol(path))

    def _url(self, path: str) -> str:
        """fsspec answers with stripped paths; the engine keeps complete ones."""
        return path if _URL.match(path) else f"{self.root}{path}"

    def find(self, pattern: str, recursive: bool) -> list[str]:
        pattern = pattern.rstrip("/")
        if not _GLOB.search(pattern):
            if self.filesystem.isfile(pattern):
                return [pattern]
            pattern += "/**" if recursive else "/*"
        root = self._url(self.stripped(_fixed_part(pattern)))
        found = self.filesystem.glob(pattern, detail=True)
        urls = (self._url(p) for p, info in found.items() if info["type"] == "file")
        return sorted(url for url in urls if not _is_hidden(url, root))

    def exists(self, path: str) -> bool:
        return bool(self.filesystem.exists(path))

    def is_directory(self, path: str) -> bool:
        return bool(self.filesystem.isdir(path))

    def list_names(self, directory: str) -> list[str]:
        self.filesystem.invalidate_cache(directory)
        try:
            entries = self.filesystem.ls(directory, detail=False)
        except FileNotFoundError:
            return []
        return sorted(entry.rstrip("/").rpartition("/")[2] for entry in entries)

    def size_bytes(self, path: str) -> int:
        return int(self.filesystem.size(path))

    def make_directory(self, path: str) -> None:
        self.filesystem.makedirs(path, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.rm(path, recursive=True)

    def rename(self, source: str, target: str) -> None:
        if self.is_directory(target) and not self.list_names(target):
            self.filesystem.rmdir(target)
        self.filesystem.mv(source, target, recursive=self.is_directory(source))

    def exchange_directories(self, one: str, other: str) -> bool:
        del one, other
        return False

    def open_input(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.PythonFile(self.filesystem.open(path, "rb"), mode="r")

    def open_output(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.PythonFile(self.filesystem.open(path, "wb"), mode="w")

    def read_ranges(self, ranges: list[tuple[str, int, int]]) -> list[pa.Buffer]:
        """Read many `(path, offset, length)` in one call of the file system's batched read."""
        import pyarrow as pa

        paths, offsets, lengths = zip(*ranges, strict=True)
        ends = [offset + length for offset, length in zip(offsets, lengths, strict=True)]
        blocks = self.filesystem.cat_ranges(list(paths), list(offsets), ends)
        return [pa.py_buffer(block) for block in blocks]
