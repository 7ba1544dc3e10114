"""Who may do what, by mode bits, ownership and the sticky bit."""

import errno
import stat
from typing import Final

from fs3.errors import PermissionDenied, from_errno
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import Caller

READ: Final = 4
WRITE: Final = 2
SEARCH: Final = 1
CHANGE_ENTRIES: Final = WRITE | SEARCH


def permits(inode: Inode, caller: Caller, wanted: int) -> bool:
    """Whether the mode bits that apply to the caller (owner, else group, else others) have
    `wanted`. Root may do everything."""
    if caller.uid == 0:
        return True
    if caller.uid == inode.uid:
        bits = inode.mode >> 6
    elif is_member(caller, inode.gid):
        bits = inode.mode >> 3
    else:
        bits = inode.mode
    return bits & wanted == wanted


def require(inode: Inode, caller: Caller, wanted: int, path: str) -> None:
    """Raises PermissionDenied (EACCES)."""
    if not permits(inode, caller, wanted):
        raise from_errno(errno.EACCES, path)


def require_owner(inode: Inode, caller: Caller, path: str) -> None:
    """Raises PermissionDenied (EPERM)."""
    if not is_owner(inode, caller):
        raise not_permitted(path)


def require_unlink(directory: Inode, child: Inode, caller: Caller, path: str) -> None:
    """Taking `child` out of `directory`: write access, and in a sticky directory ownership.

    Raises:
        PermissionDenied: EACCES or EPERM.
    """
    require(directory, caller, CHANGE_ENTRIES, path)
    if is_stuck(directory, child, caller):
        raise not_permitted(path)


def is_stuck(directory: Inode, child: Inode, caller: Caller) -> bool:
    """Whether the sticky bit of `directory` keeps the caller from taking `child` out."""
    return (
        bool(directory.mode & stat.S_ISVTX)
        and not is_owner(directory, caller)
        and not is_owner(child, caller)
    )


def is_owner(inode: Inode, caller: Caller) -> bool:
    return caller.uid in (0, inode.uid)


def is_member(caller: Caller, gid: int) -> bool:
    return gid == caller.gid or gid in caller.groups


def without_privilege(inode: Inode) -> int:
    """The mode of a file that somebody else changed: no setuid, and no setgid that would run."""
    if inode.kind is not Kind.FILE:
        return inode.mode
    mode = inode.mode & ~stat.S_ISUID
    return mode & ~stat.S_ISGID if mode & stat.S_IXGRP else mode


def not_permitted(path: str) -> PermissionDenied:
    return PermissionDenied(f"{path}: operation not permitted", errno=errno.EPERM)
