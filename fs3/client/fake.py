"""A cluster in memory behind the client's two ports, for tests and for trying things out.

    with FakeCluster().connect() as fs: ...

It answers the same encoded messages with the same errors as the services, checked by one contract
suite, and can be told to fail: `FakeChannel.lose_replies` applies operations whose answer never
arrives, which is what exactly-once is for.
"""

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from typing_extensions import Buffer

from fs3.client.connection import Connection
from fs3.client.filesystem import FileSystem
from fs3.client.metadata import Identity, MetadataClient
from fs3.client.ports import IO_RESULT, DataPort, IoArray
from fs3.config.client import ClientConfig
from fs3.config.cluster import Endpoint
from fs3.errors import Fs3Error, StaleHandle, Unavailable, from_errno
from fs3.ids import (
    ROOT_INODE,
    UNKNOWN_CLUSTER,
    ChainId,
    InodeId,
    RequestId,
    SessionId,
    new_incarnation,
)
from fs3.model.inode import Inode, Kind, Layout
from fs3.model.routing import ChainTable, Routing
from fs3.units import KIB
from fs3.wire import metadata as wire

_LINKS_MAX: Final = 40
_TABLE: Final = ChainTable(1, 1, tuple(ChainId(i) for i in range(1, 5)))


class FakeMetadata:
    """The namespace of the metadata service: one inode table, directories as dictionaries."""

    def __init__(self, chunk_size: int) -> None:
        self._layout = Layout(_TABLE.id, _TABLE.version, chunk_size, stripe=2)
        self._lock = threading.Lock()
        self._inodes: dict[int, Inode] = {}
        self._children: dict[int, dict[str, InodeId]] = {}
        self._sessions: dict[int, int] = {}
        self._replies: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._last_id = ROOT_INODE - 1
        self._last_session = 0
        self._caller = wire.Caller(0, 0, (), 0, RequestId(0), RequestId(0))
        self._make(Kind.DIRECTORY, 0o755, parent=ROOT_INODE)

    def answer(self, method: int, body: bytes) -> tuple[int, bytes]:
        """(status, body) as a server gives them; a repeated request gets the first answer."""
        request_type = wire.METHODS[method][0]
        caller, raw = msgspec.msgpack.decode(body, type=tuple[wire.Caller, msgspec.Raw])
        request = msgspec.msgpack.decode(raw, type=request_type)
        with self._lock:
            replay = (caller.client, caller.request)
            if replay not in self._replies:
                self._caller = caller
                self._replies[replay] = self._apply(request)
            forgotten = [
                key
                for key in self._replies
                if key[0] == caller.client and key[1] <= caller.acknowledged
            ]
            answer = self._replies[replay]
            for key in forgotten:
                del self._replies[key]
            return answer

    def open_sessions(self) -> int:
        return len(self._sessions)

    def _apply(self, request: Any) -> tuple[int, bytes]:
        operation: Callable[[Any], msgspec.Struct] = getattr(self, _OPERATION[type(request)])
        try:
            return 0, msgspec.msgpack.encode(operation(request))
        except Fs3Error as error:
            refusal = wire.ErrorBody(error.errno or 0, error.message)
            return error.number, msgspec.msgpack.encode(refusal)

    # Operations.

    def _stat(self, request: wire.Stat) -> Inode:
        return self._resolve(request.base, request.path, request.follow)

    def _list(self, request: wire.List) -> wire.Listing:
        children = self._directory(self._resolve(request.base, request.path), request.path)
        names = sorted((n for n in children if n > request.after), key=str.encode)
        page = names[: request.limit]
        entries = tuple(self._entry(name, children[name], request.attributes) for name in page)
        return wire.Listing(entries, len(names) > len(page))

    def _open(self, request: wire.Open) -> wire.Opened:
        flags = request.flags
        created = False
        try:
            if flags & os.O_CREAT and flags & os.O_EXCL:
                self._require_absent(request.base, request.path)
            inode = self._resolve(request.base, request.path, not flags & os.O_NOFOLLOW)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            inode, created = self._create(request), True
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
        if inode.kind is Kind.DIRECTORY and (writes or flags & os.O_CREAT):
            raise from_errno(errno.EISDIR, request.path)
        if inode.kind is Kind.SYMLINK:
            raise from_errno(errno.ELOOP, request.path)
        if flags & os.O_DIRECTORY and inode.kind is not Kind.DIRECTORY:
            raise from_errno(errno.ENOTDIR, request.path)
        if not created:
            self._require_access(inode, 4 * (flags & 3 != os.O_WRONLY) | 2 * writes, request.path)
        if flags & os.O_TRUNC and inode.length:
            inode = self._cut(inode, 0)
        return wire.Opened(inode, self._session(inode) if writes else SessionId(0), created)

    def _close(self, request: wire.Close) -> Inode:
        inode = self._sync(request)
        del self._sessions[request.session]
        return inode

    def _sync(self, request: wire.Close | wire.Sync) -> Inode:
        if self._sessions.get(request.session) != request.inode:
            raise StaleHandle(f"write session {request.session} is not open")
        inode = self._inodes[request.inode]
        if request.length is not None and request.truncate_version == inode.truncate_version:
            inode = self._put(inode, length=max(inode.length, request.length))
        if request.mtime_ns is not None:
            inode = self._put(inode, mtime_ns=request.mtime_ns, ctime_ns=time.time_ns())
        return inode

    def _truncate(self, request: wire.Truncate) -> Inode:
        inode = self._resolve(request.base, request.path)
        if inode.kind is Kind.DIRECTORY:
            raise from_errno(errno.EISDIR, request.path)
        if self._sessions.get(request.session) != inode.id:
            self._require_access(inode, 2, request.path)
        return self._cut(inode, request.length)

    def _mkdir(self, request: wire.Mkdir) -> Inode:
        if request.parents:
            return self._make_parents(request)
        parent, name = self._parent(request.base, request.path.rstrip("/"))
        self._require_free(parent, name, request.path)
        inode = self._make(Kind.DIRECTORY, request.mode, parent=parent.id)
        self._enter(parent, name, inode)
        return inode

    def _symlink(self, request: wire.Symlink) -> Inode:
        parent, name = self._parent(request.base, request.path)
        self._require_free(parent, name, request.path)
        inode = self._make(Kind.SYMLINK, 0o777, target=request.target)
        self._enter(parent, name, inode)
        return inode

    def _link(self, request: wire.Link) -> Inode:
        inode = self._resolve(request.base, request.path, follow=False)
        if inode.kind is Kind.DIRECTORY:
            raise from_errno(errno.EPERM, request.path)
        parent, name = self._parent(request.new_base, request.new_path)
        self._require_free(parent, name, request.new_path)
        inode = self._put(inode, nlink=inode.nlink + 1)
        self._enter(parent, name, inode)
        return inode

    def _rename(self, request: wire.Rename) -> wire.Empty:
        old_parent, old_name = self._parent(request.base, request.path.rstrip("/"))
        new_parent, new_name = self._parent(request.new_base, request.new_path.rstrip("/"))
        moved = self._child(old_parent, old_name, request.path)
        replaced = self._children[new_parent.id].get(new_name)
        self._require_no_loop(moved, new_parent, request.new_path)
        self._require_access(old_parent, 2, request.path)
        self._require_access(new_parent, 2, request.new_path)
        if replaced == moved.id:
            return wire.Empty()
        if replaced is not None:
            self._require_replaceable(moved, self._inodes[replaced], request)
            self._drop(new_parent, new_name)
        del self._children[old_parent.id][old_name]
        self._children[new_parent.id][new_name] = moved.id
        if moved.kind is Kind.DIRECTORY:
            self._put(moved, parent=new_parent.id)
        return wire.Empty()

    def _remove(self, request: wire.Remove) -> wire.Empty:
        parent, name = self._parent(request.base, request.path.rstrip("/"))
        inode = self._child(parent, name, request.path)
        is_directory = inode.kind is Kind.DIRECTORY
        if request.kind is Kind.DIRECTORY and not is_directory:
            raise from_errno(errno.ENOTDIR, request.path)
        if request.kind is Kind.FILE and is_directory:
            raise from_errno(errno.EISDIR, request.path)
        self._require_access(parent, 2, request.path)
        if is_directory and self._children[inode.id] and not request.recursive:
            raise from_errno(errno.ENOTEMPTY, request.path)
        self._drop(parent, name)
        return wire.Empty()

    def _set_attributes(self, request: wire.SetAttributes) -> Inode:
        inode = self._resolve(request.base, request.path, request.follow)
        if self._caller.uid not in (0, inode.uid):
            raise from_errno(errno.EPERM, request.path)
        fields = ("mode", "uid", "gid", "atime_ns", "mtime_ns")
        changes = {f: v for f in fields if (v := getattr(request, f)) is not None}
        now = time.time_ns()
        changes = {f: now if v == wire.NOW else v for f, v in changes.items()}
        return self._put(inode, **changes, ctime_ns=now)

    def _set_layout(self, request: wire.SetLayout) -> Inode:
        inode = self._resolve(request.base, request.path)
        self._directory(inode, request.path)
        assert inode.layout is not None, "directories have a layout"
        fields = ("chunk_size", "stripe")
        changes = {f: v for f in fields if (v := getattr(request, f)) is not None}
        return self._put(inode, layout=msgspec.structs.replace(inode.layout, **changes))

    def _stat_fs(self, _: wire.StatFs) -> wire.FsStatistics:
        used = sum(inode.length for inode in self._inodes.values())
        return wire.FsStatistics(1 << 30, used, (1 << 30) - used, len(self._inodes))

    # Resolution.

    def _resolve(self, base: int, path: str, follow: bool = True) -> Inode:
        return self._step(self._base(base), path, follow, _LINKS_MAX)

    def _step(self, here: Inode, path: str, follow: bool, links: int) -> Inode:
        names = [name for name in path.split("/") if name not in ("", ".")]
        for i, name in enumerate(names):
            rest = "/".join(names[i + 1 :])
            entry = self._child(here, name, path)
            if entry.kind is Kind.SYMLINK and (follow or rest):
                if not links:
                    raise from_errno(errno.ELOOP, path)
                root = self._inodes[ROOT_INODE]
                start = root if entry.target.startswith("/") else here
                target = self._step(start, entry.target, True, links - 1)
                return self._step(target, rest, follow, links - 1)
            here = entry
        if path.endswith("/") and here.kind is not Kind.DIRECTORY:
            raise from_errno(errno.ENOTDIR, path)
        return here

    def _parent(self, base: int, path: str) -> tuple[Inode, str]:
        above, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise from_errno(errno.EINVAL, path)
        if len(name.encode()) > wire.NAME_MAX:
            raise from_errno(errno.ENAMETOOLONG, path)
        parent = self._resolve(base, above)
        self._directory(parent, path)
        return parent, name

    def _base(self, base: int) -> Inode:
        if base not in self._inodes:
            raise from_errno(errno.ENOENT, f"inode {base}")
        return self._inodes[base]

    def _child(self, directory: Inode, name: str, path: str) -> Inode:
        children = self._directory(directory, path)
        self._require_access(directory, 1, path)
        if name == "..":
            return self._inodes[directory.parent]
        if name not in children:
            raise from_errno(errno.ENOENT, path)
        return self._inodes[children[name]]

    def _directory(self, inode: Inode, path: str) -> dict[str, InodeId]:
        if inode.kind is not Kind.DIRECTORY:
            raise from_errno(errno.ENOTDIR, path)
        return self._children[inode.id]

    # Guards.

    def _require_absent(self, base: InodeId, path: str) -> None:
        parent, name = self._parent(base, path)
        self._require_free(parent, name, path)

    def _require_free(self, parent: Inode, name: str, path: str) -> None:
        if name in self._children[parent.id]:
            raise from_errno(errno.EEXIST, path)
        self._require_access(parent, 2, path)

    def _require_access(self, inode: Inode, wanted: int, path: str) -> None:
        caller = self._caller
        shift = 6 if caller.uid == inode.uid else 3 if inode.gid in caller.groups else 0
        if caller.uid != 0 and wanted & ~(inode.mode >> shift):
            raise from_errno(errno.EACCES, path)

    def _require_no_loop(self, moved: Inode, new_parent: Inode, path: str) -> None:
        here = new_parent
        while moved.kind is Kind.DIRECTORY:
            if here.id == moved.id:
                raise from_errno(errno.EINVAL, path)
            if here.id == ROOT_INODE:
                return
            here = self._inodes[here.parent]

    def _require_replaceable(self, moved: Inode, old: Inode, request: wire.Rename) -> None:
        if request.flags & wire.RENAME_NOREPLACE:
            raise from_errno(errno.EEXIST, request.new_path)
        if old.kind is Kind.DIRECTORY and moved.kind is not Kind.DIRECTORY:
            raise from_errno(errno.EISDIR, request.new_path)
        if old.kind is not Kind.DIRECTORY and moved.kind is Kind.DIRECTORY:
            raise from_errno(errno.ENOTDIR, request.new_path)
        if old.kind is Kind.DIRECTORY and self._children[old.id]:
            raise from_errno(errno.ENOTEMPTY, request.new_path)

    # Changes.

    def _create(self, request: wire.Open) -> Inode:
        parent, name = self._parent(request.base, request.path)
        existing = self._children[parent.id].get(name)
        if existing is not None:  # a dangling link: the file it names is created
            target = self._inodes[existing].target
            return self._create(msgspec.structs.replace(request, base=parent.id, path=target))
        self._require_free(parent, name, request.path)
        inode = self._make(Kind.FILE, request.mode, layout=request.layout or parent.layout)
        self._enter(parent, name, inode)
        return inode

    def _make_parents(self, request: wire.Mkdir) -> Inode:
        here = self._base(request.base)
        for name in request.path.split("/"):
            children = self._directory(here, request.path)
            if name and name not in children:
                made = self._make(Kind.DIRECTORY, request.mode, parent=here.id)
                self._enter(here, name, made)
            here = self._step(here, name, True, _LINKS_MAX)
        if here.kind is not Kind.DIRECTORY:
            raise from_errno(errno.EEXIST, request.path)
        return here

    def _make(self, kind: Kind, mode: int, **fields: Any) -> Inode:
        self._last_id += 1
        now = time.time_ns()
        if kind is not Kind.SYMLINK:
            layout = fields.pop("layout", None) or self._layout
            fields["layout"] = msgspec.structs.replace(layout, seed=self._last_id)
        inode = Inode(
            InodeId(self._last_id),
            kind,
            mode & 0o7777,
            self._caller.uid,
            self._caller.gid,
            nlink=2 if kind is Kind.DIRECTORY else 1,
            length=len(fields.get("target", "").encode()),
            atime_ns=now,
            mtime_ns=now,
            ctime_ns=now,
            **fields,
        )
        self._inodes[inode.id] = inode
        if kind is Kind.DIRECTORY:
            self._children[inode.id] = {}
        return inode

    def _put(self, inode: Inode, **changes: Any) -> Inode:
        changed = msgspec.structs.replace(inode, **changes)
        self._inodes[inode.id] = changed
        return changed

    def _cut(self, inode: Inode, length: int) -> Inode:
        now = time.time_ns()
        changes: dict[str, Any] = {"length": length, "mtime_ns": now, "ctime_ns": now}
        if length < inode.length:
            changes["pending_cut"] = length
            changes["truncate_version"] = inode.truncate_version + 1
        return self._put(inode, **changes)

    def _enter(self, parent: Inode, name: str, inode: Inode) -> None:
        self._children[parent.id][name] = inode.id
        self._put(self._inodes[parent.id], mtime_ns=time.time_ns())

    def _drop(self, parent: Inode, name: str) -> None:
        inode = self._inodes[self._children[parent.id].pop(name)]
        self._put(self._inodes[parent.id], mtime_ns=time.time_ns())
        for child in list(self._children.get(inode.id, ())):
            self._drop(inode, child)
        if inode.kind is not Kind.DIRECTORY:
            self._put(inode, nlink=inode.nlink - 1)

    def _session(self, inode: Inode) -> SessionId:
        self._last_session += 1
        self._sessions[self._last_session] = inode.id
        return SessionId(self._last_session)

    def _entry(self, name: str, inode: InodeId, attributes: bool) -> wire.Entry:
        found = self._inodes[inode]
        return wire.Entry(name, inode, found.kind, found if attributes else None)


_OPERATION: Final[dict[type, str]] = {
    wire.Stat: "_stat",
    wire.List: "_list",
    wire.Open: "_open",
    wire.Close: "_close",
    wire.Sync: "_sync",
    wire.Truncate: "_truncate",
    wire.Mkdir: "_mkdir",
    wire.Symlink: "_symlink",
    wire.Link: "_link",
    wire.Rename: "_rename",
    wire.Remove: "_remove",
    wire.SetAttributes: "_set_attributes",
    wire.SetLayout: "_set_layout",
    wire.StatFs: "_stat_fs",
}


class MetadataServer(Protocol):
    """What a `FakeChannel` leads to."""

    def answer(self, method: int, body: bytes) -> tuple[int, bytes]:
        """(status, body) of one request."""

    def open_sessions(self) -> int: ...


class FakeChannel:
    """A connection to a metadata server in memory that can be told to fail.

    Attributes:
        lose_requests: so many of the next batches never arrive.
        lose_replies: so many of the next batches are applied, but not answered.
        calls: batches sent so far.
    """

    def __init__(self, metadata: MetadataServer) -> None:
        self._metadata = metadata
        self.lose_requests = 0
        self.lose_replies = 0
        self.calls = 0

    def call_many(
        self, requests: Sequence[tuple[int, bytes]], timeout_s: float
    ) -> list[tuple[int, bytes | str]]:
        assert timeout_s > 0, "an attempt has time"
        self.calls += 1
        if self.lose_requests:
            self.lose_requests -= 1
            return [(Unavailable.number, "connection refused")] * len(requests)
        answers = [self._metadata.answer(method, body) for method, body in requests]
        if self.lose_replies:
            self.lose_replies -= 1
            return [(Unavailable.number, "connection reset")] * len(requests)
        return list(answers)

    def close(self) -> None:
        """Nothing is held, so the same channel serves the next dial."""


_OFFSET_MAX: Final = 1 << 58
"""Of 2^32 chunks of the largest size."""


class _Contents:
    """The chunks of one file, as one sparse array, and the newest cut applied to them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.truncate_version = 0


class FakeData:
    """Chunk IO in memory, as `IoClient` does it.

    Attributes:
        fail_with: code of every read and write while it is not 0.
    """

    def __init__(self, contents: dict[int, _Contents]) -> None:
        self._contents = contents
        self._lock = threading.Lock()
        self._handles: dict[int, tuple[int, int, int]] = {}  # inode, length, truncate version
        self._cuts: dict[int, int] = {}  # where chunks end that have not heard of that version
        self._last = 0
        self._counts = dict.fromkeys(("reads", "writes", "read_bytes", "written_bytes"), 0)
        self.fail_with = 0

    def open_file(
        self,
        inode: int,
        chunk_size: int,
        chain_ids: Sequence[int],
        length: int,
        truncate_version: int,
    ) -> int:
        if not chain_ids or chunk_size & (chunk_size - 1):
            raise ValueError("no chain, or not a power of two")
        with self._lock:
            self._last += 1
            self._handles[self._last] = inode, length, truncate_version
            self._cuts[self._last] = length
            return self._last

    def set_length(self, handle: int, length: int, truncate_version: int) -> None:
        self._handles[handle] = self._handles[handle][0], length, truncate_version
        self._cuts[handle] = length

    def close_file(self, handle: int) -> None:
        del self._handles[handle]

    def open_handles(self) -> int:
        return len(self._handles)

    def read(self, requests: IoArray, into: Buffer, timeout_s: float) -> IoArray:
        return self._each(requests, memoryview(into).cast("B"), self._read_one, timeout_s)

    def write(self, requests: IoArray, source: Buffer, timeout_s: float) -> IoArray:
        return self._each(requests, memoryview(source).cast("B"), self._write_one, timeout_s)

    def truncate(
        self, handle: int, length: int, truncate_version: int, timeout_s: float
    ) -> tuple[int, int]:
        assert timeout_s > 0
        contents = self._of(self._handles[handle][0])
        if truncate_version < contents.truncate_version:
            return StaleHandle.number, 0
        if truncate_version > contents.truncate_version:
            del contents.data[length:]
            contents.truncate_version = truncate_version
        return 0, 1

    def flush(self, handle: int, timeout_s: float) -> tuple[int, int]:
        assert timeout_s > 0
        return self.fail_with, len(self._of(self._handles[handle][0]).data)

    def counters(self) -> dict[str, int]:
        return {**self._counts, "retried_ops": 0, "hedged_reads": 0}

    def close(self) -> None:
        self._handles.clear()

    def _each(
        self,
        requests: IoArray,
        buffer: memoryview,
        one: Callable[[int, int, memoryview], tuple[int, int]],
        timeout_s: float,
    ) -> IoArray:
        assert timeout_s > 0
        results = np.zeros(len(requests), IO_RESULT)
        with self._lock:
            for i, (handle, _, offset, length, begin) in enumerate(requests.tolist()):
                if begin + length > len(buffer):
                    raise ValueError("a range leaves the buffer")
                if offset + length > _OFFSET_MAX:
                    raise ValueError("a range leaves the largest file")
                if self.fail_with:
                    results[i] = self.fail_with, 0, 0
                else:
                    code, count = one(handle, offset, buffer[begin : begin + length])
                    results[i] = code, 0, count
        return results

    def _read_one(self, handle: int, offset: int, into: memoryview) -> tuple[int, int]:
        _, length, _ = self._handles[handle]
        contents = self._followed(handle)
        if contents is None:
            return StaleHandle.number, 0
        count = max(min(len(into), length - offset), 0)
        stored = contents.data[offset : offset + count]
        into[:count] = bytes(stored).ljust(count, b"\0")
        self._counts["reads"] += 1
        self._counts["read_bytes"] += count
        return 0, count

    def _write_one(self, handle: int, offset: int, source: memoryview) -> tuple[int, int]:
        inode, length, truncate_version = self._handles[handle]
        contents = self._followed(handle)
        if contents is None:
            return StaleHandle.number, 0
        contents.data.extend(bytes(max(offset + len(source) - len(contents.data), 0)))
        contents.data[offset : offset + len(source)] = source
        self._handles[handle] = inode, max(length, offset + len(source)), truncate_version
        self._counts["writes"] += 1
        self._counts["written_bytes"] += len(source)
        return 0, len(source)

    def _followed(self, handle: int) -> _Contents | None:
        """The contents, cut where the handle says if its cut is new; None if a newer one was."""
        inode, _, truncate_version = self._handles[handle]
        contents = self._of(inode)
        if truncate_version < contents.truncate_version:
            return None
        if truncate_version > contents.truncate_version:
            del contents.data[self._cuts[handle] :]
            contents.truncate_version = truncate_version
        return contents

    def _of(self, inode: int) -> _Contents:
        return self._contents.setdefault(inode, _Contents())


class FakeCluster:
    """One namespace and its chunks; any number of file systems connect to it.

    Args:
        chunk_size: of new files; small, so that tests cross chunk boundaries cheaply.
        config: of the clients.
        metadata: another metadata server than the fake one.
        table: the chain table that its layouts name.
        data: opens another data client than the fake one.
    """

    def __init__(
        self,
        chunk_size: int = 64 * KIB,
        config: ClientConfig | None = None,
        metadata: MetadataServer | None = None,
        table: ChainTable = _TABLE,
        data: Callable[[], DataPort] | None = None,
    ) -> None:
        self.config = config or ClientConfig(metadata_deadline_s=2.0, write_buffer_bytes=64 * KIB)
        self.metadata = metadata or FakeMetadata(chunk_size)
        self._table = table
        self.contents: dict[int, _Contents] = {}
        self.channel = FakeChannel(self.metadata)
        self.data = FakeData(self.contents)
        self._open_data = data or self._fake_data

    def connect(self, identity: Identity | None = None) -> FileSystem:
        """A file system on this cluster, by default as root."""
        return FileSystem(lambda: self._open(identity or Identity(0, 0, ())), "fs3://fake:1")

    def _fake_data(self) -> FakeData:
        self.data = FakeData(self.contents)
        return self.data

    def _open(self, identity: Identity) -> Connection:
        metadata = MetadataClient(
            lambda: [Endpoint("fake", 1)],
            lambda _: self.channel,
            identity,
            new_incarnation(),
            self.config,
        )
        routing = Routing(UNKNOWN_CLUSTER, 1, 1, tables=(self._table,))
        return Connection(metadata, self._open_data(), lambda: routing, self.config, lambda: None)
