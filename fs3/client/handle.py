"""An open inode: offsets in, bytes out, no position and no buffer.

It keeps what the metadata service said (length, truncate version) next to what this handle has
written itself, and publishes the latter with `sync` and `close`.

Cuts: a truncation is first a metadata transaction; the inode then says from where chunks that have
not heard of it lose their bytes (`pending_cut`). Each chunk operation carries a cut at the length
that the data client was told last; where that is behind the pending one, because the file has grown
again, the handle tells all chunks before its next read or write. When another client cuts the file,
storage refuses the old truncate version with STALE_HANDLE; the handle then learns the new one and
repeats the operation, ordered after the cut. A chunk that was never written cannot know of a cut:
storage takes a write to it under any version. The handles of one client therefore tell each other
of cuts, and a length that cannot be published because another client cut the file is an error: the
bytes may have been written before the cut or after it.
"""

import errno
import threading
import time
from typing import Any, Final

from fs3.client import fork
from fs3.client.connection import Connection, Link
from fs3.client.metadata import about
from fs3.client.ports import one_request
from fs3.errors import Fs3Error, InvalidArgument, StaleHandle, from_errno, from_number
from fs3.model.inode import Inode, Kind
from fs3.wire import metadata as wire

_CUTS_MAX: Final = 16
"""How often one operation follows cuts made by others before it gives up."""


class Handle:
    """Args:
    link: the connection of this process.
    path: as the user wrote it, for messages.
    opened: the metadata service's answer; a session of 0 means read-only.
    """

    def __init__(self, link: Link, path: str, opened: wire.Opened) -> None:
        if opened.inode.kind is not Kind.FILE:
            raise about(from_errno(errno.EISDIR, path), path)
        self.path = path
        self.inode: Inode = opened.inode
        self.link = link
        self._session = opened.session
        self._lock = threading.Lock()  # of the next four: writes run in several threads
        self._written_end = 0
        self._written_ns = 0
        self._writes = 0
        self._published = 0  # of these writes, others see this many
        self._closed = False
        self._cut_version = 0
        self._told_length = 0
        self._connection = link.get()
        self._number = self._register()
        if opened.session:
            fork.register(self)
            link.handles.add(self)

    @property
    def length(self) -> int:
        """The file's length as far as this handle knows."""
        return max(self.inode.length, self._written_end)

    @property
    def chunk_size(self) -> int:
        layout = self.inode.layout
        assert layout is not None, "files have a layout"
        return layout.chunk_size

    @property
    def connection(self) -> Connection:
        """The connection this handle's number belongs to, which is that of this process."""
        connection = self.link.get()
        if connection is not self._connection:
            self._connection = connection
            self._number = self._register()
        return connection

    @property
    def number(self) -> int:
        """The data client's number of this file, ready for IO."""
        _ = self.connection
        pending = self.inode.pending_cut
        if pending is not None and pending < self._told_length:
            self.apply_cut()
        return self._number

    def read_into(self, offset: int, into: memoryview) -> int:
        """Fills `into` from `offset`; bytes read, fewer only at the end of the file."""
        return int(self._transfer("read", offset, into)["length"])

    def write(self, offset: int, source: memoryview) -> None:
        """Returns once the bytes are on every serving replica."""
        for _ in range(_CUTS_MAX):
            version = self.inode.truncate_version
            self._transfer("write", offset, source)
            with self._lock:
                if self.inode.truncate_version == version:
                    self._written_end = max(self._written_end, offset + len(source))
                    self._written_ns = time.time_ns()
                    self._writes += 1
                    return
        raise self._kept_being_cut()

    def refresh(self) -> None:
        """Learns length and truncate version from the metadata service."""
        request = wire.Stat(self.inode.id, "")
        self.adopt(self.connection.metadata.call(request, Inode, self.path))

    def truncate(self, length: int) -> None:
        """Cuts or extends (with zeros) the file."""
        self.publish()
        request = wire.Truncate(self.inode.id, "", length, self._session)
        self.follow(self.connection.metadata.call(request, Inode, self.path))
        self.apply_cut()

    def follow(self, inode: Inode) -> None:
        """Takes over a cut made by this process, in all its handles of the file."""
        self.adopt(inode)
        for handle in list(self.link.handles):
            if handle is not self and handle.inode.id == inode.id:
                handle.adopt(inode)

    def apply_cut(self) -> None:
        """Tells every chunk of the newest cut, once; a newer one by somebody else wins."""
        inode = self.inode
        if inode.pending_cut is None or inode.truncate_version == self._cut_version:
            return
        deadline_s = self.connection.config.io_deadline_s
        code, _ = self.connection.data.truncate(
            self._number, inode.pending_cut, inode.truncate_version, deadline_s
        )
        if code != StaleHandle.number:
            self._check(code, f"cut to {inode.pending_cut} bytes")
        self._cut_version = inode.truncate_version

    def publish(self) -> None:
        """Lets others see the length of what was written."""
        if self._writes != self._published:
            self._publish()

    def sync(self) -> None:
        """Returns once everything written survives power loss, length included."""
        if not self._session:
            return
        code, _ = self.connection.data.flush(self.number, self.connection.config.io_deadline_s)
        self._check(code, "flushing to media")
        self._publish()

    def close(self, *, is_one_write: bool = False) -> None:
        """Ends the write session, publishing the length. A reader sends nothing.

        Args:
            is_one_write: opening, writing and closing are one operation to the caller, so that a
                cut in between counts as made after it.

        Raises:
            StaleHandle: another client cut the file, and what was written since may be gone.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            if self._session:
                self.link.handles.discard(self)
                _, end = self._own_end()
                request = wire.Close(self.inode.id, self._session, *end)
                self.inode = self.connection.metadata.call(request, Inode, self.path)
                is_cut = self.inode.truncate_version != request.truncate_version
                if is_cut and request.length is not None and not is_one_write:
                    raise StaleHandle(
                        f"{self.path}: was truncated by another client; what was written here "
                        "since may be gone, write it again"
                    )
        finally:
            self._release()

    def __del__(self) -> None:
        # Readers are closed by dropping them: another thread may be in the middle of a batch.
        if hasattr(self, "_number") and not self._closed:
            self._release()

    def check(self, result: Any, what: str) -> bool:
        """False when the operation must be repeated because the file was cut by somebody.

        Raises:
            Fs3Error: it failed for another reason.
        """
        if result["code"] == StaleHandle.number:
            self.refresh()
            return False
        self._check(int(result["code"]), what)
        return True

    def after_fork_in_child(self) -> None:
        """The session belongs to the parent, which goes on using it."""
        self._lock = threading.Lock()
        self._closed = True

    def _transfer(self, verb: str, offset: int, buffer: memoryview) -> Any:
        if self._closed:
            raise InvalidArgument(f"{self.path}: I/O operation on closed file")
        if offset < 0:
            raise InvalidArgument(f"{self.path}: {verb} at {offset}, before the beginning")
        if offset + len(buffer) > self.chunk_size << 32:
            raise about(from_errno(errno.EFBIG, self.path), self.path)
        for _ in range(_CUTS_MAX):
            request = one_request(self.number, offset, len(buffer))
            connection = self._connection
            operation = connection.data.read if verb == "read" else connection.data.write
            result = operation(request, buffer, connection.config.io_deadline_s)[0]
            if self.check(result, f"{verb} of {len(buffer)} bytes at {offset}"):
                return result
        raise self._kept_being_cut()

    def _kept_being_cut(self) -> StaleHandle:
        return StaleHandle(f"{self.path}: others keep cutting the file; coordinate its writers")

    def _publish(self) -> None:
        writes, end = self._own_end()
        request = wire.Sync(self.inode.id, self._session, *end)
        inode = self.connection.metadata.call(request, Inode, self.path)
        with self._lock:  # another thread may have written meanwhile
            self._published = max(self._published, writes)
        self.adopt(inode)

    def _own_end(self) -> tuple[int, tuple[int | None, int, int | None]]:
        """The number of writes, and their length, truncate version and time for Sync and Close."""
        with self._lock:
            version = self.inode.truncate_version
            if self._writes == self._published:
                return self._writes, (None, version, None)
            return self._writes, (self._written_end, version, self._written_ns)

    def adopt(self, inode: Inode) -> None:
        """Takes over what the metadata service says of the file now, unless newer is known."""
        with self._lock:
            if self._closed or inode.truncate_version < self.inode.truncate_version:
                return
            if inode.truncate_version > self.inode.truncate_version:
                self._written_end = 0  # what was written before belongs to the old version
                self._published = self._writes
            self.inode = inode
            self._told_length = self.length
            self.connection.data.set_length(self._number, self._told_length, inode.truncate_version)

    def _register(self) -> int:
        inode = self.inode
        assert inode.layout is not None, "files have a layout"
        self._told_length = self.length
        return self._connection.data.open_file(
            inode.id,
            inode.layout.chunk_size,
            self._connection.chains_of(inode.layout),
            self._told_length,
            inode.truncate_version,
        )

    def _release(self) -> None:
        """Frees the number; one of a connection that is gone went with it."""
        if self.link.is_current(self._connection):
            self._connection.data.close_file(self._number)

    def _check(self, code: int, what: str) -> None:
        if code:
            raise data_error(code, self.path, what)


def data_error(code: int, path: str, what: str) -> Fs3Error:
    """The typed error of a failed chunk operation, with what to do about it."""
    return about(from_number(code, f"{what} failed: {_REMEDY.get(code, _UNEXPECTED)}"), path)


_UNEXPECTED: Final = "see `fs3 health` and the storage servers' logs"
_REMEDY: Final = {
    8: "no space left on a storage target; remove files or add nodes, see `fs3 df`",
    9: "the storage servers are at their limit; use fewer clients or retry later",
    10: "no replica could be reached; see `fs3 health`",
    11: "no replica answered in time; see `fs3 health`",
    12: "the routing kept changing; see `fs3 health`",
    14: "bytes failed their checksum on every replica; restore the file from its source",
}
