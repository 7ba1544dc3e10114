"""Attributes and directory entries in the shapes of the `os` module, which users know."""

import os
import stat
from collections.abc import Callable

from fs3.model.inode import Inode, Kind
from fs3.units import NANOSECONDS_PER_SECOND

_BLOCK_BYTES = 512


def stat_result(inode: Inode) -> os.stat_result:
    """The inode as `os.stat` would give it; `st_blksize` is the file's chunk size."""
    return os.stat_result(
        (
            inode.st_mode,
            inode.id,
            0,
            inode.nlink,
            inode.uid,
            inode.gid,
            inode.length,
            inode.atime_ns // NANOSECONDS_PER_SECOND,
            inode.mtime_ns // NANOSECONDS_PER_SECOND,
            inode.ctime_ns // NANOSECONDS_PER_SECOND,
        ),
        {
            "st_atime": inode.atime_ns / NANOSECONDS_PER_SECOND,
            "st_mtime": inode.mtime_ns / NANOSECONDS_PER_SECOND,
            "st_ctime": inode.ctime_ns / NANOSECONDS_PER_SECOND,
            "st_atime_ns": inode.atime_ns,
            "st_mtime_ns": inode.mtime_ns,
            "st_ctime_ns": inode.ctime_ns,
            "st_blksize": inode.layout.chunk_size if inode.layout else 0,
            "st_blocks": -(-inode.length // _BLOCK_BYTES),
        },
    )


class DirEntry:
    """As `os.DirEntry`: a name in a directory, with attributes that were listed with it."""

    __slots__ = ("_follow", "_inode", "name", "path")

    def __init__(
        self, name: str, path: str, inode: Inode, follow: Callable[[str], os.stat_result]
    ) -> None:
        self.name = name
        self.path = path
        self._inode = inode
        self._follow = follow

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<fs3.DirEntry {self.name!r}>"

    def inode(self) -> int:
        return self._inode.id

    def is_symlink(self) -> bool:
        return self._inode.kind is Kind.SYMLINK

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISREG, follow_symlinks)

    def readlink(self) -> str:
        """The text of a symbolic link, empty for anything else."""
        return self._inode.target

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Asks the metadata service only for the target of a symbolic link."""
        if follow_symlinks and self.is_symlink():
            return self._follow(self.path)
        return stat_result(self._inode)

    def _is(self, test: Callable[[int], bool], follow_symlinks: bool) -> bool:
        try:
            return test(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except FileNotFoundError:
            return False
