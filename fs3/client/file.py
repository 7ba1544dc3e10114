"""File objects: what `fs.open` returns.

`File` is a binary stream with the promises of the buffered streams of the standard library: `read`
and `write` are complete, errors appear at the latest in `close`. It has its own buffers because
those of `io` know nothing of chunks: writes are collected up to chunk boundaries and full buffers
are sent by a second thread while the next one fills; reads in sequence are made ahead in windows
that double; large reads and writes go straight from and to the caller's memory.

Reading through a handle sees what was written through it before. Other handles see it after
`flush`, `fsync` or `close`, as soon as they meet the end of the file as they knew it, or are opened
anew.
"""

import io
import os
import threading
import warnings
from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from typing_extensions import Buffer

from fs3.client import fork
from fs3.client.buffers import ReadWindow, WriteBuffer
from fs3.client.entry import stat_result
from fs3.client.fresh import filled
from fs3.client.handle import Handle
from fs3.client.mode import Mode
from fs3.errors import Fs3Error, InvalidArgument

_RANDOM_WINDOW_BYTES: Final = 8 * 1024
"""Read around a small read that does not continue the last one: lines and headers need it."""

_SENDS_MAX: Final = 2
"""Full buffers on their way at once, per file."""


class File(io.BufferedIOBase):
    """An open file in binary mode. Thread-safe; the position is shared by all threads.

    `read_at`, `readinto_at` and `write_at` take an offset, use no buffer and leave the position.
    """

    def __init__(self, handle: Handle, mode: Mode, *, buffered: bool = True) -> None:
        super().__init__()
        config = handle.connection.config
        self.mode = mode.text
        self.name = handle.path
        self._handle = handle
        self._mode = mode
        self._buffered = buffered
        self._config = config
        self._lock = threading.RLock()
        self._position = handle.length if mode.append else 0
        self._append_known = False
        self._writes = WriteBuffer(config.write_buffer_bytes, handle.chunk_size)
        self._sends: deque[tuple[Future[None], int, memoryview]] = deque()
        self._window = ReadWindow()
        self._next_read = 0
        self._ahead = 0
        self._closing = False
        self._close_follows = False
        self._inherited = False
        if mode.writable:
            fork.register(self)

    # What kind of stream it is.

    def readable(self) -> bool:
        self._check_open()
        return self._mode.readable

    def writable(self) -> bool:
        self._check_open()
        return self._mode.writable

    def seekable(self) -> bool:
        self._check_open()
        return True

    @property
    def size(self) -> int:
        """Bytes in the file as this handle knows it, buffered ones included."""
        known = self._handle.length
        if self._writes.size:
            known = max(known, self._writes.end)
        for _, start, taken in self._sends:
            known = max(known, start + len(taken))
        return known

    def attributes(self) -> os.stat_result:
        """As the metadata service gave them at the last open, flush or close; asks nothing."""
        return stat_result(self._handle.inode)

    # Reading.

    def read(self, size: int | None = -1, /) -> bytes:
        """`size` bytes, fewer only at the end of the file; everything when negative or None."""
        with self._lock:
            self._check_readable()
            if size is None or size < 0:
                return self._read_rest()
            ready = self._window.view(self._position, size)
            if len(ready) == size and not self._writes.size:
                self._position += size
                return bytes(ready)
            return filled(min(size, max(self._known_rest(), 0)), self._read_here)

    def read1(self, size: int = -1, /) -> bytes:
        """At most one request's worth: what the window holds, or the next window."""
        with self._lock:
            if size < 0:
                size = max(self._window_rest(), _RANDOM_WINDOW_BYTES)
            return self.read(size)

    def readinto(self, buffer: Buffer, /) -> int:
        """Fills the buffer, without a copy when it is large; the number of bytes."""
        with self._lock:
            self._check_readable()
            return self._read_here(bytes_of(buffer))

    def readinto1(self, buffer: Buffer, /) -> int:
        return self.readinto(buffer)

    def peek(self, size: int = 0, /) -> bytes:
        """Bytes at the position without moving it; at least one unless at the end."""
        with self._lock:
            self._check_readable()
            if not self._window_rest() or self._writes.size:
                self._drain()
                if self._known_rest() > 0:
                    self._fill_window(self._position, max(size, 1))
            return bytes(self._window.view(self._position, max(size, _RANDOM_WINDOW_BYTES)))

    def read_at(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`, fewer only at the end of the file."""
        if min(offset, size) < 0:
            raise InvalidArgument(f"{self.name}: cannot read {size} bytes at {offset}")
        known = min(size, max(self.size - offset, 0))
        return filled(known, lambda into: self.readinto_at(offset, into))

    def readinto_at(self, offset: int, buffer: Buffer) -> int:
        """Fills the buffer from `offset` straight from storage; the number of bytes."""
        self._check_readable()
        into = bytes_of(buffer)
        if self._mode.writable:
            with self._lock:
                self._drain()
        return self._handle.read_into(offset, into) if len(into) else 0

    # Writing.

    def write(self, data: Buffer, /) -> int:
        """Takes all of `data`; the number of bytes."""
        view = bytes_of(data)
        with self._lock:
            self._check_writable()
            if self._mode.append:
                self._position = self._append_position()
            if len(view):
                self._window.discard()
                self._put(self._position, view)
                self._position += len(view)
        return len(view)

    def write_at(self, offset: int, data: Buffer) -> int:
        """Writes `data` at `offset` straight to storage, also in append mode."""
        view = bytes_of(data)
        with self._lock:
            self._check_writable()
            self._drain()
            self._window.discard()
        if len(view):
            self._handle.write(offset, view)
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        """Cuts, or extends with zeros, to `size` or the position; the position stays."""
        with self._lock:
            self._check_writable()
            size = self._position if size is None else size
            if size < 0:
                raise InvalidArgument(f"{self.name}: cannot truncate to {size} bytes")
            self._drain()
            self._window.discard()
            self._handle.truncate(size)
            return size

    def flush(self) -> None:
        """Sends what is buffered and lets other handles see it. For power loss see `fsync`."""
        if self._closing or self._close_follows:
            return
        with self._lock:
            self._check_open()
            if self._mode.writable:
                self._drain()
                self._handle.publish()
                self._append_known = False

    def fsync(self) -> None:
        """Returns once everything written survives the power loss of all servers."""
        with self._lock:
            self._check_open()
            if self._mode.writable:
                self._drain()
                self._handle.sync()

    # Position.

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with self._lock:
            self._check_open()
            if whence == os.SEEK_END:
                self._refresh()
            base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}
            if whence not in base:
                raise InvalidArgument(f"{self.name}: {whence} is not a way to seek")
            position = base[whence] + offset
            if position < 0:
                raise InvalidArgument(f"{self.name}: cannot seek to {position}")
            self._position = position
            return position

    def tell(self) -> int:
        self._check_open()
        return self._position

    # The end.

    def close(self) -> None:
        """Sends what is left and ends the session; raises when anything could not be stored."""
        with self._lock:
            if self.closed or self._closing:
                return
            self._closing = True
            try:
                self._drain()
            finally:
                self._finish()

    def _finish(self) -> None:
        try:
            self._handle.close()
        finally:
            super().close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def expect_close(self) -> None:
        """The next `flush` is part of a close, which publishes the length anyway."""
        self._close_follows = True

    def warn_unclosed(self) -> None:
        """Warns, from a finaliser, about a writer that nobody closed."""
        if self._mode.writable and not (self.closed or self._closing):
            warnings.warn(
                f"{self.name}: was never closed, so an error in storing it would pass unseen; "
                "use `with fs.open(...)`",
                ResourceWarning,
                source=self,
                stacklevel=3,
            )

    def close_late(self) -> None:
        """Closes a file that nobody closed, with a warning, also about what could not be stored."""
        self.warn_unclosed()
        try:
            self.close()
        except Fs3Error as error:
            warnings.warn(f"{self.name}: could not be stored: {error}", ResourceWarning, 3, self)

    def __del__(self) -> None:
        if hasattr(self, "_inherited"):  # else the constructor failed
            self.close_late()

    def __repr__(self) -> str:
        return f"<fs3.File {self.name!r} mode={self.mode!r}{' closed' if self.closed else ''}>"

    def after_fork_in_child(self) -> None:
        """The parent will send what is buffered; here nothing may be."""
        self._lock = threading.RLock()
        self._writes.discard()
        self._sends.clear()
        self._closing = self._inherited = True

    # Reading, with the lock held.

    def _read_rest(self) -> bytes:
        return filled(max(self._known_rest(), 0), self._read_here)

    def _known_rest(self) -> int:
        """Bytes from the position to the end; asks the metadata service when that seems reached."""
        self._has_more(self._position, refresh=True)
        return self.size - self._position

    def _read_here(self, into: memoryview) -> int:
        self._drain_range(self._position, len(into))
        done = 0
        while done < len(into):
            position = self._position + done
            count = self._window.copy_to(position, into[done:])
            if not count and self._has_more(position, refresh=done == 0):
                count = self._read_more(position, into[done:])
            if not count:
                break
            done += count
        self._position += done
        return done

    def _has_more(self, position: int, *, refresh: bool) -> bool:
        if refresh and self.size <= position:
            self._refresh()
        return position < self.size

    def _read_more(self, position: int, into: memoryview) -> int:
        """Through the window, unless nothing would be left in it or a copy would cost too much."""
        is_large = len(into) >= self._config.readahead_bytes_max // 4
        if not self._buffered or is_large or position + len(into) >= self.size:
            return self._handle.read_into(position, into)
        self._fill_window(position, len(into))
        return self._window.copy_to(position, into)

    def _fill_window(self, position: int, wanted: int) -> None:
        if position == self._next_read:
            self._ahead = min(
                max(2 * self._ahead, self._config.readahead_bytes_min),
                self._config.readahead_bytes_max,
            )
        else:
            self._ahead = _RANDOM_WINDOW_BYTES
        size = min(max(wanted, self._ahead), self.size - position)
        self._drain_range(position, size)
        self._window.size = self._handle.read_into(position, self._window.space(position, size))
        self._next_read = position + self._window.size

    def _window_rest(self) -> int:
        return self._window.rest(self._position)

    def _refresh(self) -> None:
        if self._mode.writable:
            self._drain()
        self._handle.refresh()

    # Writing, with the lock held.

    def _append_position(self) -> int:
        """Where an append goes: the end, which others may have moved since our last flush."""
        if not self._append_known:
            self._refresh()
            self._append_known = True
        return self.size

    def _put(self, position: int, view: memoryview) -> None:
        if not self._buffered:
            self._handle.write(position, view)
            self._handle.publish()
            return
        while len(view):
            room = self._writes.room(position)
            if room == 0:
                self._send()
                continue
            if not self._writes.size and len(view) >= room:
                taken = self._writes.whole_chunks(position, len(view))
                self._settle_sends(0)
                self._handle.write(position, view[:taken])
            else:
                taken = min(room, len(view))
                self._writes.put(position, view[:taken])
            position += taken
            view = view[taken:]

    def _send(self) -> None:
        """Hands the full buffer to another thread; waits for an earlier one when two are going."""
        self._settle_sends(_SENDS_MAX - 1)
        start, taken = self._writes.take()
        future = self._handle.connection.writers.submit(self._handle.write, start, taken)
        self._sends.append((future, start, taken))

    def _settle_sends(self, still_going: int) -> None:
        while len(self._sends) > still_going:
            future, _, taken = self._sends.popleft()
            future.result()
            self._writes.give_back(taken)

    def _drain(self) -> None:
        """Returns once every byte written so far is stored."""
        try:
            self._settle_sends(0)
        finally:
            if self._writes.size:
                start, taken = self._writes.take()
                self._handle.write(start, taken)
                self._writes.give_back(taken)

    def _drain_range(self, position: int, size: int) -> None:
        is_hole = self._writes.size and position + size > self._handle.length  # before what waits
        if self._sends or is_hole or self._writes.overlaps(position, size):
            self._drain()

    # Guards.

    def _check_open(self) -> None:
        if self._inherited:
            raise InvalidArgument(
                f"{self.name}: was opened for writing before a fork; open it again in the child"
            )
        if self.closed or self._closing:
            raise InvalidArgument(f"{self.name}: I/O operation on closed file")

    def _check_readable(self) -> None:
        self._check_open()
        if not self._mode.readable:
            raise io.UnsupportedOperation(f"{self.name}: opened with {self.mode!r}, not readable")

    def _check_writable(self) -> None:
        self._check_open()
        if not self._mode.writable:
            raise io.UnsupportedOperation(f"{self.name}: opened with {self.mode!r}, not writable")


class TextFile(io.TextIOWrapper):
    """A text stream over a `File`. Closing it sends what is left once, not twice."""

    def close(self) -> None:
        if not self.closed:
            self._file.expect_close()
        super().close()

    def close_late(self) -> None:
        """As `File.close_late`."""
        if self.closed:
            return
        file = self._file
        file.warn_unclosed()
        try:
            self.close()
        except Fs3Error as error:
            warnings.warn(f"{file.name}: could not be stored: {error}", ResourceWarning, 3, self)

    def __del__(self) -> None:
        self.close_late()

    @property
    def _file(self) -> File:
        file: Any = self.buffer
        assert isinstance(file, File), "opened by FileSystem.open"
        return file


def bytes_of(buffer: Buffer) -> memoryview:
    """The buffer as flat bytes, without a copy."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise InvalidArgument("the buffer is not contiguous; copy it first")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")
