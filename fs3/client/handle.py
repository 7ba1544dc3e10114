"""An open inode: offsets in, bytes out, no position and no buffer.

It keeps what the metadata service said (length, truncate version) next to what this handle has
written itself, and publishes the latter with `sync` and `close`.

Cuts: a truncation is first a metadata transaction; the inode then says from where chunks that have
not heard of it lose their bytes (`pending_cut`). Each chunk operation carries a cut at the length
that the data client was told last; where that is behind the pending one, because the file has grown
again, the handle tells all chunks before its next read or write. When another client cuts the file,
storage refuses the old truncate version with STALE_HANDLE; the handle then learns the new one and
repeats the operation, ordered after the cut.
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
        self._lock = threading.Lock()  # of the next three: writes run in several threads
        self._written_end = 0
        self._written_ns = 0
        self._unpublished = False
        self._closed = False
        self._cut_version = 0
        self._told_length = 0
        self._connection = link.get()
        self._number = self._register()
        if opened.session:
            fork.register(self)

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
        self._transfer("write", offset, source)
        with self._lock:
            self._written_end = max(self._written_end, offset + len(source))
            self._written_ns = time.time_ns()
            self._unpublished = True

    def refresh(self) -> None:
        """Learns length and truncate version from the metadata service."""
        request = wire.Stat(self.inode.id, "")
        self.adopt(self.connection.metadata.call(request, Inode, self.path))

    def truncate(self, length: int) -> None:
        """Cuts or extends (with zeros) the file."""
        self.publish()
        request = wire.Truncate(self.inode.id, "", length, self._session)
        self.adopt(self.connection.metadata.call(request, Inode, self.path))
        self.apply_cut()

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
        if self._unpublished:
            request = wire.Sync(self.inode.id, self._session, *self._own_end())
            self.adopt(self.connection.metadata.call(request, Inode, self.path))
            self._unpublished = False

    def sync(self) -> None:
        """Returns once everything written survives power loss, length included."""
        if not self._session:
            return
        code, _ = self.connection.data.flush(self.number, self.connection.config.io_deadline_s)
        self._check(code, "flushing to media")
        request = wire.Sync(self.inode.id, self._session, *self._own_end())
        self.adopt(self.connection.metadata.call(request, Inode, self.path))
        self._unpublished = False

    def close(self) -> None:
        """Ends the write session, publishing the length. A reader sends nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._session:
                request = wire.Close(self.inode.id, self._session, *self._own_end())
                self.inode = self.connection.metadata.call(request, Inode, self.path)
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
        for _ in range(_CUTS_MAX):
            request = one_request(self.number, offset, len(buffer))
            connection = self._connection
            operation = connection.data.read if verb == "read" else connection.data.write
            result = operation(request, buffer, connection.config.io_deadline_s)[0]
            if self.check(result, f"{verb} of {len(buffer)} bytes at {offset}"):
                return result
        raise StaleHandle(f"{self.path}: others keep cutting the file; coordinate its writers")

    def _own_end(self) -> tuple[int | None, int, int | None]:
        """Length, truncate version and time for Sync and Close."""
        if not self._unpublished:
            return None, self.inode.truncate_version, None
        return self._written_end, self.inode.truncate_version, self._written_ns

    def adopt(self, inode: Inode) -> None:
        """Takes over what the metadata service says of the file now."""
        if inode.truncate_version != self.inode.truncate_version:
            self._written_end = 0  # what was written before belongs to the old version
            self._unpublished = False
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
