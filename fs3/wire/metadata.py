"""Metadata operations over fs3rpc: one method number, one request and one reply struct each.

A request body is the msgpack array `[Caller, request]`; a reply body is the msgpack reply struct,
or, when the frame's status is not zero, an `ErrorBody`. Fields are only appended, with defaults.

Every path is resolved by the server from the inode `base`: clients send (ROOT_INODE, "a/b/c"), the
mount sends (parent, name). `..` and symbolic links are resolved there too.
"""

from typing import Final

import msgspec

from fs3.ids import InodeId, RequestId, SessionId
from fs3.model.inode import Inode, Kind, Layout

NAME_MAX: Final = 255
PATH_MAX: Final = 4096
LIST_LIMIT_MAX: Final = 4096
RENAME_NOREPLACE: Final = 1
NOW: Final = -1


class Caller(msgspec.Struct, frozen=True, array_like=True):
    """Who asks, and which request this is, for permission checks and exactly-once.

    Attributes:
        client: incarnation of the client process.
        request: number of this request, unique within the client; a retry repeats it.
        acknowledged: every request of this client up to this number has been answered, so its
            replay records may be dropped.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]
    client: int
    request: RequestId
    acknowledged: RequestId


class ErrorBody(msgspec.Struct, frozen=True, array_like=True):
    errno: int
    message: str


class Stat(msgspec.Struct, frozen=True, array_like=True):
    base: InodeId
    path: str
    follow: bool = True


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One directory entry; `inode` only when attributes were asked for."""

    name: str
    id: InodeId
    kind: Kind
    inode: Inode | None = None


class List(msgspec.Struct, frozen=True, array_like=True):
    """Entries in byte order of their UTF-8 names, those after `after`, at most `limit`."""

    base: InodeId
    path: str
    after: str = ""
    limit: int = 1024
    attributes: bool = True


class Listing(msgspec.Struct, frozen=True, array_like=True):
    entries: tuple[Entry, ...]
    more: bool


class Open(msgspec.Struct, frozen=True, array_like=True):
    """`flags` are the POSIX O_ bits: access mode, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY,
    O_NOFOLLOW. `layout` overrides the directory's default for a file created here."""

    base: InodeId
    path: str
    flags: int
    mode: int = 0o644
    layout: Layout | None = None


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """`session` is 0 for a read-only open; a write session lasts until Close or client death."""

    inode: Inode
    session: SessionId
    created: bool = False


class Close(msgspec.Struct, frozen=True, array_like=True):
    """Ends a write session. `length` is the writer's own acknowledged maximum, merged by max under
    the same `truncate_version`; None when nothing was written."""

    inode: InodeId
    session: SessionId
    length: int | None = None
    truncate_version: int = 0
    mtime_ns: int | None = None


class Sync(msgspec.Struct, frozen=True, array_like=True):
    """Publishes length and time of an open file; fields as in Close."""

    inode: InodeId
    session: SessionId
    length: int | None = None
    truncate_version: int = 0
    mtime_ns: int | None = None


class Truncate(msgspec.Struct, frozen=True, array_like=True):
    """With the caller's own write `session` of the file, the permissions are those of its open."""

    base: InodeId
    path: str
    length: int = 0
    session: SessionId = SessionId(0)


class Mkdir(msgspec.Struct, frozen=True, array_like=True):
    """`parents` makes missing ancestors and accepts an existing directory, as `mkdir -p`."""

    base: InodeId
    path: str
    mode: int = 0o755
    parents: bool = False


class Symlink(msgspec.Struct, frozen=True, array_like=True):
    base: InodeId
    path: str
    target: str


class Link(msgspec.Struct, frozen=True, array_like=True):
    base: InodeId
    path: str
    new_base: InodeId
    new_path: str


class Rename(msgspec.Struct, frozen=True, array_like=True):
    """`flags`: 0, or 1 for NOREPLACE."""

    base: InodeId
    path: str
    new_base: InodeId
    new_path: str
    flags: int = 0


class Remove(msgspec.Struct, frozen=True, array_like=True):
    """`kind` DIRECTORY is rmdir, FILE is unlink (of anything but a directory), None is either."""

    base: InodeId
    path: str
    kind: Kind | None = None
    recursive: bool = False


class SetAttributes(msgspec.Struct, frozen=True, array_like=True):
    """None leaves a field as it is; a time of NOW is the server's, and needs no ownership."""

    base: InodeId
    path: str
    follow: bool = True
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None


class SetLayout(msgspec.Struct, frozen=True, array_like=True):
    """Default layout of a directory's future children: None leaves a field as it is."""

    base: InodeId
    path: str
    chunk_size: int | None = None
    stripe: int | None = None


class StatFs(msgspec.Struct, frozen=True, array_like=True):
    pass


class FsStatistics(msgspec.Struct, frozen=True, array_like=True):
    """Bytes a user can store (replicas already divided out), and files."""

    capacity_bytes: int
    used_bytes: int
    free_bytes: int
    inodes: int


class Empty(msgspec.Struct, frozen=True, array_like=True):
    pass


Request = (
    Stat
    | List
    | Open
    | Close
    | Sync
    | Truncate
    | Mkdir
    | Symlink
    | Link
    | Rename
    | Remove
    | SetAttributes
    | SetLayout
    | StatFs
)

METHODS: Final[dict[int, tuple[type[msgspec.Struct], type[msgspec.Struct]]]] = {
    0x0401: (Stat, Inode),
    0x0402: (List, Listing),
    0x0403: (Open, Opened),
    0x0404: (Close, Inode),
    0x0405: (Sync, Inode),
    0x0406: (Truncate, Inode),
    0x0407: (Mkdir, Inode),
    0x0408: (Symlink, Inode),
    0x0409: (Link, Inode),
    0x040A: (Rename, Empty),
    0x040B: (Remove, Empty),
    0x040C: (SetAttributes, Inode),
    0x040D: (SetLayout, Inode),
    0x040E: (StatFs, FsStatistics),
}
"""Method number -> (request type, reply type). Numbers are never reused."""

METHOD_OF: Final = {request: number for number, (request, _) in METHODS.items()}
