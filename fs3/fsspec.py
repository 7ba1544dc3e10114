"""fs3 for everything that speaks fsspec: pandas, pyarrow, DuckDB, dask, Hugging Face datasets.

    pandas.read_parquet("fs3:///data/part-0.parquet")
    fsspec.filesystem("fs3", url="fs3://host:7000").ls("/data")

Paths count from the root: `fs3:///a/b` and `fs3://a/b` are `/a/b`. An authority is a cluster only
when it has a numeric port, as in `fs3://host:7000/a/b`; otherwise `url=` or `directory=` in the
storage options, `FS3_URL` or the default local cluster decide, as for `fs3.connect`.

Missing parent directories are made when a file is written, as users of object stores expect
(`auto_mkdir=False` turns that off). Directories are never cached.
"""

import functools
import io
import os
import stat
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, TypeVar

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path

from fs3.client.connect import connect
from fs3.client.file import File
from fs3.client.filesystem import FileSystem
from fs3.client.path import split_url
from fs3.client.transfer import copy, pump, upload
from fs3.errors import InvalidArgument, NotFound

R = TypeVar("R")

_FSSPEC_OPTIONS: Final = frozenset(
    {
        "asynchronous",
        "batch_size",
        "listings_expiry_time",
        "loop",
        "max_paths",
        "skip_instance_cache",
        "use_listings_cache",
    }
)


class Fs3FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Args:
    url: cluster manager, as for `fs3.connect`.
    cluster: the same, for callers that use the name `url` themselves, as pandas.read_parquet does.
    directory: of a local cluster, as for `fs3.connect`.
    filesystem: an open `FileSystem` to use instead of connecting.
    auto_mkdir: make missing parent directories when writing.
    options: fsspec's own, see `fsspec.spec.AbstractFileSystem`.

    Raises:
        InvalidArgument: an option that nobody knows; it might have been meant to name a cluster.
    """

    protocol: ClassVar[str] = "fs3"
    root_marker: ClassVar[str] = "/"

    def __init__(
        self,
        url: str | None = None,
        directory: str | None = None,
        cluster: str | None = None,
        filesystem: FileSystem | None = None,
        auto_mkdir: bool = True,
        **options: Any,
    ) -> None:
        unknown = sorted(options.keys() - _FSSPEC_OPTIONS)
        if unknown:
            raise InvalidArgument(
                f"fs3 knows no storage option {', '.join(unknown)}; name the cluster by `url`, "
                "`cluster` or `directory`"
            )
        super().__init__(**options)
        self.url = url or cluster
        self.filesystem = filesystem or _shared(self.url, directory)
        self.auto_mkdir = auto_mkdir

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        text = stringify_path(path).removeprefix("fs3::")
        return split_url(text)[1]

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        url, _ = split_url(path)
        return {} if url is None else {"url": url}

    def unstrip_protocol(self, name: str) -> str:
        return f"{self.url or 'fs3://'}{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"fs3-{self.filesystem.url}"

    # Directories.

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        del kwargs
        self.filesystem.mkdir(self._strip_protocol(path), parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.filesystem.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.filesystem.rmdir(self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        del kwargs
        path = self._strip_protocol(path)
        try:
            entries = list(self.filesystem.scandir(path))
        except NotADirectoryError:
            return [self.info(path)] if detail else [path]
        if not detail:
            return [entry.path for entry in entries]
        return [
            self.info(entry.path)
            if entry.is_symlink()
            else _details(entry.path, entry.stat(follow_symlinks=False))
            for entry in entries
        ]

    # Attributes.

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        del kwargs
        path = self._strip_protocol(path)
        attributes = self.filesystem.lstat(path)
        if not stat.S_ISLNK(attributes.st_mode):
            return _details(path, attributes)
        try:
            details = _details(path, self.filesystem.stat(path))
        except FileNotFoundError:
            details = _details(path, attributes)
        details |= {"islink": True, "destination": self.filesystem.readlink(path)}
        return details

    def exists(self, path: str, **kwargs: Any) -> bool:
        del kwargs
        return self.filesystem.exists(self._strip_protocol(path))

    def lexists(self, path: str, **kwargs: Any) -> bool:
        del kwargs
        path = self._strip_protocol(path)
        return self.filesystem.exists(path) or self.filesystem.is_symlink(path)

    def isfile(self, path: str) -> bool:
        return self.filesystem.is_file(self._strip_protocol(path))

    def isdir(self, path: str) -> bool:
        return self.filesystem.is_dir(self._strip_protocol(path))

    def created(self, path: str) -> datetime:
        """Time of the last change of the inode: as on most file systems, birth is not recorded."""
        return datetime.fromtimestamp(self.info(path)["created"], UTC)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        del kwargs
        path = self._strip_protocol(path)
        if truncate or not self.filesystem.exists(path):
            self.pipe_file(path, b"")
        else:
            self.filesystem.utime(path)

    # Content.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> "File | _Uncommitted":
        del block_size, cache_options, kwargs
        if not autocommit and mode.startswith("w"):
            return _Uncommitted(self, path)
        file = self._making_parents(path, lambda: self.filesystem.open(path, mode))
        assert isinstance(file, File), "fsspec asks for binary modes only"
        return file

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        del kwargs
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.filesystem.read_bytes(path)
        with self.filesystem.open(path, "rb") as file:
            begin, stop, _ = slice(start, end).indices(file.size)
            return file.read_at(begin, max(stop - begin, 0))

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """All ranges in one batch; `max_gap` is ignored: separate ranges cost nothing here."""
        del max_gap
        if not isinstance(paths, list):
            raise TypeError("paths is a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends have different lengths")
        if all(_is_plain(start, end) for start, end in zip(starts, ends, strict=True)):
            samples = [
                (self._strip_protocol(path), start or 0, max(end - (start or 0), 0))
                for path, start, end in zip(paths, starts, ends, strict=True)
            ]
            try:
                return [part.tobytes() for part in self.filesystem.read_many(samples)]
            except OSError:
                if on_error != "return":
                    raise
        found: list[Any] = super().cat_ranges(paths, starts, ends, on_error=on_error, **kwargs)
        return found

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        del kwargs
        path = self._strip_protocol(path)
        if mode == "create":
            with self._open(path, "xb") as file:
                file.write(value)
        else:
            self._making_parents(path, lambda: self.filesystem.write_bytes(path, value))

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Callback = DEFAULT_CALLBACK,
        outfile: Any = None,
        **kwargs: Any,
    ) -> None:
        del kwargs
        rpath = self._strip_protocol(rpath)
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        elif outfile is None and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with self.filesystem.open(rpath, "rb") as source:
            callback.set_size(source.size)
            if outfile is not None:
                pump(source, outfile, callback.relative_update)
                return
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            with open(lpath, "wb", buffering=0) as sink:
                pump(source, sink, callback.relative_update)

    def put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        del kwargs
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        callback.set_size(os.path.getsize(lpath))
        if mode == "create":
            with open(lpath, "rb", buffering=0) as source, self._open(rpath, "xb") as sink:
                pump(source, sink, callback.relative_update)
            return
        self._making_parents(
            rpath, lambda: upload(self.filesystem, lpath, rpath, callback.relative_update)
        )

    # Names.

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        del kwargs
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        else:
            self._making_parents(path2, lambda: copy(self.filesystem, path1, path2, lambda _: None))

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """One atomic rename, of a directory as well; `recursive` is not needed."""
        del recursive, maxdepth, kwargs
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if path1 != path2:
            self._making_parents(path2, lambda: self.filesystem.rename(path1, path2))

    def _rm(self, path: str) -> None:
        self.filesystem.remove(self._strip_protocol(path))

    def rm(
        self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        paths = path if isinstance(path, list) else [path]
        if not recursive or maxdepth is not None:
            for found in reversed(self.expand_path(paths, recursive, maxdepth)):
                self._rm_one(found)
            return
        for found in self.expand_path(paths):
            self.filesystem.remove_tree(found)

    def _rm_one(self, path: str) -> None:
        try:
            self.filesystem.remove(path)
        except IsADirectoryError:
            self.filesystem.rmdir(path)

    def _making_parents(self, path: str, operation: Callable[[], R]) -> R:
        """Runs `operation`; when the parent of `path` is missing, makes it and runs it again."""
        try:
            return operation()
        except NotFound:
            parent = os.path.dirname(path)
            if not self.auto_mkdir or self.filesystem.exists(parent):
                raise
        self.filesystem.makedirs(parent, exist_ok=True)
        return operation()


class _Uncommitted(io.BufferedIOBase):
    """A file of an fsspec transaction: written beside its place and renamed into it."""

    def __init__(self, fs: Fs3FileSystem, path: str) -> None:
        super().__init__()
        self._fs = fs
        self._path = path
        directory, name = os.path.split(path)
        self._temporary = f"{directory}/.{name}.{uuid.uuid4().hex}"
        file = fs._open(self._temporary, "wb")
        assert isinstance(file, File), "opened with autocommit"
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        self._file.close()
        super().close()

    def commit(self) -> None:
        """The file appears under its name, all at once."""
        self.close()
        self._fs.filesystem.rename(self._temporary, self._path)

    def discard(self) -> None:
        self.close()
        self._fs.filesystem.remove(self._temporary)


@functools.cache
def _shared(url: str | None, directory: str | None) -> FileSystem:
    """One connection for all threads of a process: fsspec makes an instance for each thread."""
    return connect(url, directory=directory)


def _details(path: str, attributes: os.stat_result) -> dict[str, Any]:
    mode = attributes.st_mode
    kind = "directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "file"
    return {
        "name": path,
        "size": attributes.st_size if kind == "file" else 0,
        "type": kind,
        "created": attributes.st_ctime,
        "mtime": attributes.st_mtime,
        "mode": mode,
        "uid": attributes.st_uid,
        "gid": attributes.st_gid,
        "ino": attributes.st_ino,
        "nlink": attributes.st_nlink,
        "islink": kind == "link",
    }


def _is_plain(start: int | None, end: int | None) -> bool:
    return end is not None and end >= 0 and (start is None or start >= 0)
