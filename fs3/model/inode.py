"""Inode and layout as they travel and as they are stored.

Structs are msgpack arrays whose fields are only ever appended, each new one with a default, so that
older records and older peers stay readable.
"""

import stat
from enum import IntEnum

import msgspec

from fs3.ids import InodeId


class Kind(IntEnum):
    FILE = 1
    DIRECTORY = 2
    SYMLINK = 3


class Layout(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where the chunks of a file lie. For a directory: what its new children get.

    Attributes:
        table: id of the chain table; 0 in a directory's default is the newest one.
        table_version: version of that table, whose chain list never changes; 0 as above.
        chunk_size: bytes, a power of two from 64 KiB to 64 MiB.
        stripe: number of chains that the chunks are spread over.
        seed: u64 that orders the table for this file (0 in a directory's default).
        hash_version: algorithm of `fs3.model.placement`.
    """

    table: int
    table_version: int
    chunk_size: int
    stripe: int
    seed: int = 0
    hash_version: int = 1


class Inode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file, directory or symbolic link.

    Attributes:
        mode: permission bits only (07777); the type is `kind`.
        length: bytes; for a symlink the length of its target text, for a directory 0.
        truncate_version: raised by each cut, so that late writes and reads cannot undo it.
        parent: for directories the parent's inode, else 0.
        target: for symlinks the text, else empty.
        layout: files and directories.
        pending_cut: for files: chunks that have not applied `truncate_version` yet lose their bytes
            from this offset on; None when every chunk has applied it.
    """

    id: InodeId
    kind: Kind
    mode: int
    uid: int
    gid: int
    nlink: int
    length: int = 0
    truncate_version: int = 0
    atime_ns: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    layout: Layout | None = None
    parent: int = 0
    target: str = ""
    pending_cut: int | None = None

    @property
    def st_mode(self) -> int:
        """Type and permission bits as in `stat(2)`."""
        return _TYPE_BITS[self.kind] | self.mode


_TYPE_BITS = {
    Kind.FILE: stat.S_IFREG,
    Kind.DIRECTORY: stat.S_IFDIR,
    Kind.SYMLINK: stat.S_IFLNK,
}
