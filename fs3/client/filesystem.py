"""The synchronous face: one method per operation, named as in `os`, `pathlib` and `shutil`.

Paths are `str` or `os.PathLike`, from the root of the cluster; see `fs3.client.path`. Errors are
`fs3.errors`, which inherit from the builtins: a missing file is a `FileNotFoundError`.

Each method is thread-safe. A `FileSystem` survives a fork (the child connects anew) and can be
pickled (the copy connects where it is loaded).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, overload

import msgspec
import numpy as np
from typing_extensions import Buffer

from fs3.client.batch import Bytes, Integers, Reader, Sample
from fs3.client.connection import Connection, Link
from fs3.client.entry import DirEntry, stat_result
from fs3.client.file import File, TextFile, bytes_of
from fs3.client.fresh import filled
from fs3.client.handle import Handle
from fs3.client.mode import Mode, parse_mode
from fs3.client.path import StrPath, relative
from fs3.config.client import ClientConfig
from fs3.errors import AlreadyExists, Fs3Error, InvalidArgument, NotADirectory, NotFound
from fs3.ids import ROOT_INODE, SessionId
from fs3.model.inode import Inode, Kind, Layout
from fs3.units import NANOSECONDS_PER_SECOND
from fs3.wire import metadata as wire

if TYPE_CHECKING:
    from fs3.client.aio import AsyncFileSystem

Reply = TypeVar("Reply", bound=msgspec.Struct)

_NO_SESSION = SessionId(0)
_READ = parse_mode("rb")
_WRITE = parse_mode("wb")


class SpaceUsage(NamedTuple):
    """Bytes a user can store (replicas divided out), and the number of files."""

    total: int
    used: int
    free: int
    files: int


class FileSystem:
    """A cluster. Made by `fs3.connect`; use it as a context manager or call `close`.

    Args:
        open_connection: connects to the cluster; must be picklable for a picklable file system.
        url: of the cluster, for messages.
    """

    def __init__(self, open_connection: Callable[[], Connection], url: str) -> None:
        self.url = url
        self._link = Link(open_connection)
        self._reader = Reader(self._link)
        self._aio: AsyncFileSystem | None = None

    # Files.

    @overload
    def open(
        self,
        path: StrPath,
        mode: Literal["rb", "wb", "ab", "xb", "r+b", "rb+", "w+b", "wb+", "a+b", "ab+", "x+b"],
        buffering: int = -1,
        *,
        permissions: int = 0o644,
    ) -> File: ...
    @overload
    def open(
        self,
        path: StrPath,
        mode: Literal["r", "w", "a", "x", "r+", "w+", "a+", "x+", "rt", "wt", "at", "xt"] = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> TextFile: ...
    @overload
    def open(
        self,
        path: StrPath,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> File | TextFile: ...
    def open(
        self,
        path: StrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> File | TextFile:
        """Opens a file like the builtin `open`; text is UTF-8 unless `encoding` says otherwise.

        Args:
            buffering: 0 sends every write and reads exactly what is asked (binary only); 1 flushes
                text after each line; anything else uses the client's own buffers.
            permissions: of a file that is created.

        Raises:
            NotFound, AlreadyExists, IsADirectory, PermissionDenied, InvalidArgument.
        """
        parsed = parse_mode(mode)
        if parsed.binary and (encoding or errors or newline):
            raise InvalidArgument("encoding, errors and newline are for text; leave out the b")
        if buffering == 0 and not parsed.binary:
            raise InvalidArgument("text cannot be unbuffered; add b to the mode")
        file: File | TextFile
        file = File(self._open(path, parsed, permissions), parsed, buffered=buffering != 0)
        if not parsed.binary:
            lines = buffering == 1
            file = TextFile(file, encoding or "utf-8", errors, newline, line_buffering=lines)
        if parsed.writable:
            self._link.writers.add(file)
        return file

    def read_bytes(self, path: StrPath) -> bytes:
        """The whole file: one metadata call and one read."""
        handle = self._open(path, _READ, 0)
        try:
            return filled(handle.length, lambda into: handle.read_into(0, into))
        finally:
            handle.close()

    def write_bytes(self, path: StrPath, data: Buffer, *, permissions: int = 0o644) -> int:
        """Replaces the file's content; the number of bytes."""
        source = bytes_of(data)
        handle = self._open(path, _WRITE, permissions)
        try:
            if len(source):
                handle.write(0, source)
        finally:
            handle.close(is_one_write=True)
        return len(source)

    def read_text(
        self, path: StrPath, encoding: str | None = None, errors: str | None = None
    ) -> str:
        with self.open(path, "r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_text(
        self,
        path: StrPath,
        text: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        with self.open(path, "w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(text)

    @overload
    def read_many(
        self, samples: Sequence[Sample], *, into: object | None = None
    ) -> list[Bytes]: ...
    @overload
    def read_many(
        self,
        samples: StrPath,
        offsets: Integers | Sequence[int],
        lengths: int,
        *,
        into: object | None = None,
    ) -> Bytes: ...
    @overload
    def read_many(
        self,
        samples: StrPath,
        offsets: Integers | Sequence[int],
        lengths: Integers | Sequence[int],
        *,
        into: object | None = None,
    ) -> list[Bytes]: ...
    def read_many(
        self,
        samples: Sequence[Sample] | StrPath,
        offsets: Integers | Sequence[int] | None = None,
        lengths: int | Integers | Sequence[int] | None = None,
        *,
        into: object | None = None,
    ) -> Bytes | list[Bytes]:
        """Reads thousands of samples in one call, straight into memory.

            fs.read_many([("/a", 0, 100), ("/b", 4096, 100)])     -> [array, array]
            fs.read_many("/a", offsets, 4096, into=batch)         -> array (len(offsets), 4096)
            fs.read_many("/a", offsets, lengths)                  -> [array, ...]

        Args:
            samples: (path, offset, length) each, or one path with `offsets` and `lengths`.
            offsets: bytes, one per sample.
            lengths: bytes, one for all samples or one per sample.
            into: writable contiguous memory for all samples, one after the other as long as asked:
                numpy, torch on the CPU (pinned as well), bytearray, memoryview. None allocates.

        Returns:
            uint8 arrays that are views of `into`. A sample that reaches behind the end of its file
            is shorter; with one length for all it is an error.

        Raises:
            Fs3Error: of the first file that cannot be opened or sample that cannot be read.
        """
        if isinstance(samples, str | os.PathLike):
            if offsets is None or lengths is None:
                raise InvalidArgument("read_many of one path needs offsets and lengths")
            if not isinstance(lengths, int):
                lengths = np.asarray(lengths)
            return self._reader.read_columns(os.fspath(samples), np.asarray(offsets), lengths, into)
        return self._reader.read_samples(samples, into)

    # Attributes.

    def stat(self, path: StrPath, *, follow_symlinks: bool = True) -> os.stat_result:
        return stat_result(self._inode(path, follow_symlinks))

    def lstat(self, path: StrPath) -> os.stat_result:
        return self.stat(path, follow_symlinks=False)

    def stat_many(self, paths: Sequence[StrPath]) -> list[os.stat_result | Fs3Error]:
        """Attributes, or the error, of each of thousands of paths in one call."""
        replies = self._link.get().metadata.call_many(
            [wire.Stat(ROOT_INODE, relative(path)) for path in paths],
            Inode,
            [os.fspath(path) for path in paths],
        )
        return [stat_result(r) if isinstance(r, Inode) else r for r in replies]

    def exists(self, path: StrPath) -> bool:
        """Whether the path leads to something; a dangling symbolic link does not."""
        return self._find(path) is not None

    def is_file(self, path: StrPath) -> bool:
        inode = self._find(path)
        return inode is not None and inode.kind is Kind.FILE

    def is_dir(self, path: StrPath) -> bool:
        inode = self._find(path)
        return inode is not None and inode.kind is Kind.DIRECTORY

    def is_symlink(self, path: StrPath) -> bool:
        inode = self._find(path, follow=False)
        return inode is not None and inode.kind is Kind.SYMLINK

    def chmod(self, path: StrPath, mode: int, *, follow_symlinks: bool = True) -> None:
        self._set(path, follow_symlinks, mode=mode)

    def chown(self, path: StrPath, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """As `os.chown`: -1 leaves the owner or the group as it is."""
        self._set(
            path,
            follow_symlinks,
            uid=None if uid == -1 else uid,
            gid=None if gid == -1 else gid,
        )

    def utime(
        self,
        path: StrPath,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """As `os.utime`: (access, modification) in seconds, or in nanoseconds, or now."""
        if times is not None and ns is not None:
            raise InvalidArgument("utime takes times in seconds or in nanoseconds, not both")
        if times is not None:
            ns = (
                int(times[0] * NANOSECONDS_PER_SECOND),
                int(times[1] * NANOSECONDS_PER_SECOND),
            )
        atime_ns, mtime_ns = ns or (wire.NOW, wire.NOW)
        self._set(path, follow_symlinks, atime_ns=atime_ns, mtime_ns=mtime_ns)

    def truncate(self, path: StrPath, length: int) -> None:
        """Cuts, or extends with zeros, to `length` bytes."""
        if length < 0:
            raise InvalidArgument(f"{os.fspath(path)}: cannot truncate to {length} bytes")
        inode = self._call(wire.Truncate(ROOT_INODE, relative(path), length), Inode, path)
        handle = Handle(self._link, os.fspath(path), wire.Opened(inode, _NO_SESSION))
        try:
            handle.follow(inode)
            handle.apply_cut()
        finally:
            handle.close()

    def statfs(self) -> SpaceUsage:
        """Space of the whole cluster."""
        statistics = self._call(wire.StatFs(), wire.FsStatistics, "")
        return SpaceUsage(
            statistics.capacity_bytes,
            statistics.used_bytes,
            statistics.free_bytes,
            statistics.inodes,
        )

    # Directories.

    def scandir(self, path: StrPath = "/") -> Iterator[DirEntry]:
        """Entries with attributes in byte order of their names, fetched page by page."""
        base, prefix = relative(path), os.fspath(path).rstrip("/") + "/"
        after, more = "", True
        while more:
            page = self._call(
                wire.List(ROOT_INODE, base, after, self._link.get().config.list_page),
                wire.Listing,
                path,
            )
            for entry in page.entries:
                assert entry.inode is not None, "attributes were asked for"
                yield DirEntry(entry.name, prefix + entry.name, entry.inode, self.stat)
                after = entry.name
            more = page.more

    def listdir(self, path: StrPath = "/") -> list[str]:
        """Names in byte order."""
        return [entry.name for entry in self.scandir(path)]

    def walk(
        self,
        top: StrPath = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """As `os.walk`: (directory, names of directories, names of others)."""
        try:
            entries = list(self.scandir(top))
        except Fs3Error as error:
            if onerror is not None:
                onerror(error)
            return
        directories = [e.name for e in entries if e.is_dir()]
        links = {e.name for e in entries if e.is_symlink()}
        here = os.fspath(top)
        found = here, directories, [e.name for e in entries if e.name not in {*directories}]
        if topdown:
            yield found
        for name in directories:
            if followlinks or name not in links:
                below = here.rstrip("/") + "/" + name
                yield from self.walk(below, topdown, onerror, followlinks)
        if not topdown:
            yield found

    def mkdir(
        self,
        path: StrPath,
        mode: int = 0o755,
        *,
        parents: bool = False,
        exist_ok: bool = False,
    ) -> None:
        """As `pathlib.Path.mkdir`: `parents` makes what is missing above."""
        if parents and exist_ok:
            self._call(wire.Mkdir(ROOT_INODE, relative(path), mode, parents=True), Inode, path)
            return
        if parents:
            above = os.path.dirname(relative(path).rstrip("/"))
            self._call(wire.Mkdir(ROOT_INODE, above, mode, parents=True), Inode, path)
        try:
            self._call(wire.Mkdir(ROOT_INODE, relative(path), mode), Inode, path)
        except AlreadyExists:
            if not exist_ok or not self.is_dir(path):
                raise

    def makedirs(self, path: StrPath, mode: int = 0o755, exist_ok: bool = False) -> None:
        """As `os.makedirs`."""
        self.mkdir(path, mode, parents=True, exist_ok=exist_ok)

    def rmdir(self, path: StrPath) -> None:
        """Removes an empty directory."""
        self._call(wire.Remove(ROOT_INODE, relative(path), Kind.DIRECTORY), wire.Empty, path)

    def remove_tree(self, path: StrPath) -> None:
        """Removes a file, or a directory with everything in it."""
        request = wire.Remove(ROOT_INODE, relative(path), None, recursive=True)
        self._call(request, wire.Empty, path)

    # Names.

    def rename(self, source: StrPath, target: StrPath, *, replace: bool = True) -> None:
        """Atomically renames, replacing what is there as POSIX does unless told otherwise."""
        flags = 0 if replace else wire.RENAME_NOREPLACE
        request = wire.Rename(ROOT_INODE, relative(source), ROOT_INODE, relative(target), flags)
        self._call(request, wire.Empty, f"{os.fspath(source)} -> {os.fspath(target)}")

    def replace(self, source: StrPath, target: StrPath) -> None:
        """As `os.replace`."""
        self.rename(source, target)

    def link(self, source: StrPath, target: StrPath) -> None:
        """Makes `target` another name of the file `source`, as `os.link`."""
        request = wire.Link(ROOT_INODE, relative(source), ROOT_INODE, relative(target))
        self._call(request, Inode, f"{os.fspath(source)} -> {os.fspath(target)}")

    def symlink(self, target: str, path: StrPath) -> None:
        """Makes `path` a symbolic link with the text `target`, as `os.symlink`."""
        self._call(wire.Symlink(ROOT_INODE, relative(path), target), Inode, path)

    def readlink(self, path: StrPath) -> str:
        inode = self._inode(path, follow=False)
        if inode.kind is not Kind.SYMLINK:
            raise InvalidArgument(f"{os.fspath(path)}: not a symbolic link")
        return inode.target

    def remove(self, path: StrPath) -> None:
        """Removes a file or a symbolic link, as `os.remove`."""
        self._call(wire.Remove(ROOT_INODE, relative(path), Kind.FILE), wire.Empty, path)

    unlink = remove

    # Layout.

    def layout(self, path: StrPath) -> Layout:
        """Chunk size and placement of a file, or what a directory gives to new children."""
        layout = self._inode(path, True).layout
        assert layout is not None, "files and directories have a layout"
        return layout

    def set_layout(
        self, path: StrPath, *, chunk_size: int | None = None, stripe: int | None = None
    ) -> None:
        """Changes what a directory gives to children made from now on."""
        request = wire.SetLayout(ROOT_INODE, relative(path), chunk_size, stripe)
        self._call(request, Inode, path)

    # The connection.

    @property
    def config(self) -> ClientConfig:
        """Limits of this client."""
        return self._link.get().config

    @property
    def aio(self) -> "AsyncFileSystem":
        """The asyncio face of this file system."""
        from fs3.client.aio import AsyncFileSystem

        if self._aio is None:
            self._aio = AsyncFileSystem(self)
        return self._aio

    def counters(self) -> dict[str, int]:
        """What was done since connecting; `retried_ops` counts repeated chunk operations."""
        connection = self._link.get()
        return connection.data.counters() | connection.metadata.counters()

    def close(self) -> None:
        """Closes the connections, before that files left open for writing, with a warning."""
        self._reader.close()
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileSystem, (self._link.open_connection, self.url)

    def __repr__(self) -> str:
        return f"<fs3.FileSystem {self.url}>"

    # Private.

    def _open(self, path: StrPath, mode: Mode, permissions: int) -> Handle:
        request = wire.Open(ROOT_INODE, relative(path), mode.flags, permissions)
        opened = self._call(request, wire.Opened, path)
        handle = Handle(self._link, os.fspath(path), opened)
        if mode.flags & os.O_TRUNC and not opened.created:
            handle.follow(opened.inode)
        return handle

    def _inode(self, path: StrPath, follow: bool) -> Inode:
        return self._call(wire.Stat(ROOT_INODE, relative(path), follow), Inode, path)

    def _find(self, path: StrPath, *, follow: bool = True) -> Inode | None:
        try:
            return self._inode(path, follow)
        except (NotFound, NotADirectory):
            return None

    def _set(self, path: StrPath, follow: bool, **changes: int | None) -> None:
        request = wire.SetAttributes(ROOT_INODE, relative(path), follow, **changes)
        self._call(request, Inode, path)

    def _call(self, request: wire.Request, reply: type[Reply], subject: StrPath) -> Reply:
        return self._link.get().metadata.call(request, reply, os.fspath(subject))
