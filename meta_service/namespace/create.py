"""Making an inode and its entry: what open, mkdir and symlink have in common."""

import errno
import stat

from fs3.errors import Unavailable, from_errno
from fs3.model.inode import Inode, Kind, Layout
from fs3.wire.metadata import Caller
from meta_service.namespace.permissions import CHANGE_ENTRIES, is_member, require
from meta_service.namespace.resolve import Place
from meta_service.namespace.tree import Tree

LINKS_MAX = (1 << 32) - 1


def require_room(caller: Caller, place: Place, path: str) -> None:
    """Whether an entry may be made at `place`.

    Raises:
        AlreadyExists: something is there.
        NotFound: the directory was removed while somebody still had it open.
        PermissionDenied: the directory may not be changed by the caller.
    """
    if place.inode is not None:
        raise from_errno(errno.EEXIST, path)
    if place.directory.nlink == 0:
        raise from_errno(errno.ENOENT, path)
    require(place.directory, caller, CHANGE_ENTRIES, path)


def create(
    tree: Tree,
    caller: Caller,
    place: Place,
    kind: Kind,
    *,
    mode: int,
    layout: Layout | None = None,
    target: str = "",
) -> Inode:
    """A new inode named by the place, which `require_room` has agreed to.

    In a setgid directory the group comes from the directory, and new directories are setgid too.
    """
    directory, now = place.directory, tree.inputs.now_ns
    is_directory = kind is Kind.DIRECTORY
    gid = directory.gid if directory.mode & stat.S_ISGID else caller.gid
    inode = tree.make(
        Inode(
            id=tree.inputs.next_inode(),
            kind=kind,
            mode=_mode(directory, caller, kind, mode, gid),
            uid=caller.uid,
            gid=gid,
            nlink=2 if is_directory else 1,
            length=len(target.encode()),
            atime_ns=now,
            mtime_ns=now,
            ctime_ns=now,
            layout=layout,
            parent=directory.id if is_directory else 0,
            target=target,
        )
    )
    tree.put_entry(directory.id, place.name, inode.id, kind)
    tree.touch(directory.id, links=1 if is_directory else 0)
    return inode


def directory_defaults(directory: Inode) -> Layout:
    """The layout that new children of `directory` get."""
    if directory.layout is None:
        raise Unavailable(f"directory inode {directory.id} has no default layout")
    return directory.layout


def _mode(directory: Inode, caller: Caller, kind: Kind, mode: int, gid: int) -> int:
    mode &= 0o7777
    if not directory.mode & stat.S_ISGID:
        return mode
    if kind is Kind.DIRECTORY:
        return mode | stat.S_ISGID
    runs_as_group = mode & stat.S_ISGID and mode & stat.S_IXGRP
    if runs_as_group and caller.uid != 0 and not is_member(caller, gid):
        return mode & ~stat.S_ISGID
    return mode
