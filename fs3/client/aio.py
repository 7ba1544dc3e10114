"""The asyncio face: the same operations as `FileSystem`, awaited.

Every method runs the synchronous one on a thread of a small pool. That is the whole design, because
the synchronous calls wait in native code without the interpreter lock: a thread costs nothing while
it waits, a hop to it about 40 us. Rejected: writing the core as coroutines with a synchronous
driver (every operation in two colours, and `io` streams are synchronous anyway), and completing
futures from the native completion queues (no gain below thousands of single operations in flight,
and for those there are `read_many` and `stat_many`, which are one call).
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from fs3.client import fork
from fs3.client.batch import Bytes, Integers, Sample
from fs3.client.entry import DirEntry
from fs3.client.file import File
from fs3.client.filesystem import FileSystem
from fs3.client.path import StrPath

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class _Threads:
    """Runs calls on a bounded pool of threads, a fresh one in a forked child."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._pool = self._start()
        fork.register(self)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, functools.partial(call, *args, **kwargs))

    def stop(self) -> None:
        self._pool.shutdown()

    def after_fork_in_child(self) -> None:
        fork.abandoned.append(self._pool)
        self._pool = self._start()

    def _start(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads_max, thread_name_prefix="fs3-aio")


def _awaited(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The same method on a thread, for a face that has `_sync` and `_threads`."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self._threads.run(method, self._sync, *args, **kwargs)
        return result

    return call


class AsyncFile:
    """An open binary file; as `File`, awaited. Use it with `async with`."""

    def __init__(self, file: File, threads: _Threads) -> None:
        self._sync = file
        self._threads = threads

    read = _awaited(File.read)
    readinto = _awaited(File.readinto)
    read_at = _awaited(File.read_at)
    readinto_at = _awaited(File.readinto_at)
    readline = _awaited(File.readline)
    write = _awaited(File.write)
    write_at = _awaited(File.write_at)
    truncate = _awaited(File.truncate)
    seek = _awaited(File.seek)
    flush = _awaited(File.flush)
    fsync = _awaited(File.fsync)
    close = _awaited(File.close)

    def tell(self) -> int:
        return self._sync.tell()

    @property
    def closed(self) -> bool:
        return self._sync.closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncFileSystem:
    """A cluster. Made by `await fs3.connect_async()`, or `fs.aio` of a synchronous one."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._sync = filesystem
        self._threads = _Threads(filesystem.config.async_threads)

    read_bytes = _awaited(FileSystem.read_bytes)
    write_bytes = _awaited(FileSystem.write_bytes)
    read_text = _awaited(FileSystem.read_text)
    write_text = _awaited(FileSystem.write_text)
    stat = _awaited(FileSystem.stat)
    lstat = _awaited(FileSystem.lstat)
    stat_many = _awaited(FileSystem.stat_many)
    exists = _awaited(FileSystem.exists)
    is_file = _awaited(FileSystem.is_file)
    is_dir = _awaited(FileSystem.is_dir)
    is_symlink = _awaited(FileSystem.is_symlink)
    chmod = _awaited(FileSystem.chmod)
    chown = _awaited(FileSystem.chown)
    utime = _awaited(FileSystem.utime)
    truncate = _awaited(FileSystem.truncate)
    statfs = _awaited(FileSystem.statfs)
    listdir = _awaited(FileSystem.listdir)
    mkdir = _awaited(FileSystem.mkdir)
    makedirs = _awaited(FileSystem.makedirs)
    rmdir = _awaited(FileSystem.rmdir)
    remove_tree = _awaited(FileSystem.remove_tree)
    rename = _awaited(FileSystem.rename)
    replace = _awaited(FileSystem.replace)
    link = _awaited(FileSystem.link)
    symlink = _awaited(FileSystem.symlink)
    readlink = _awaited(FileSystem.readlink)
    remove = _awaited(FileSystem.remove)
    unlink = _awaited(FileSystem.unlink)
    layout = _awaited(FileSystem.layout)
    set_layout = _awaited(FileSystem.set_layout)
    counters = _awaited(FileSystem.counters)

    async def open(
        self, path: StrPath, mode: str = "rb", buffering: int = -1, *, permissions: int = 0o644
    ) -> AsyncFile:
        """Opens a file in binary mode; text is decoded by the caller.

        Raises:
            ValueError: a text mode.
        """
        if "b" not in mode:
            raise ValueError(f"{mode!r}: the asyncio face opens binary files; add b to the mode")
        file = await self._threads.run(
            self._sync.open, path, mode, buffering, permissions=permissions
        )
        assert isinstance(file, File), "the mode is binary"
        return AsyncFile(file, self._threads)

    async def read_many(
        self,
        samples: Sequence[Sample] | StrPath,
        offsets: Integers | Sequence[int] | None = None,
        lengths: int | Integers | Sequence[int] | None = None,
        *,
        into: object | None = None,
    ) -> Bytes | list[Bytes]:
        """As `FileSystem.read_many`."""
        read: Callable[..., Bytes | list[Bytes]] = self._sync.read_many
        return await self._threads.run(read, samples, offsets, lengths, into=into)

    async def scandir(self, path: StrPath = "/") -> AsyncIterator[DirEntry]:
        """Entries as `FileSystem.scandir` gives them."""
        entries = self._sync.scandir(path)
        while page := await self._threads.run(_page, entries, self._sync.config.list_page):
            for entry in page:
                yield entry

    async def walk(
        self, top: StrPath = "/", topdown: bool = True
    ) -> AsyncIterator[tuple[str, list[str], list[str]]]:
        """Directories as `FileSystem.walk` gives them."""
        directories = self._sync.walk(top, topdown)
        end = object()
        while (found := await self._threads.run(next, directories, end)) is not end:
            assert isinstance(found, tuple), "what walk yields"
            yield found

    async def close(self) -> None:
        """Closes the connections, also of the synchronous face."""
        await self._threads.run(self._sync.close)
        self._threads.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<fs3.AsyncFileSystem {self._sync.url}>"


def _page(entries: Iterator[DirEntry], size: int) -> list[DirEntry]:
    return list(islice(entries, size))
