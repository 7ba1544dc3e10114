"""From a path to the inode it names, as POSIX path resolution has it.

Walks one component at a time from `base` (or from the root for an absolute path), asking for search
permission on every directory passed, following symbolic links, and taking `..` from the directory
itself, never from the text.
"""

import errno
from typing import Final, NamedTuple

from fs3.errors import InvalidArgument, from_errno
from fs3.ids import ROOT_INODE, InodeId
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import NAME_MAX, PATH_MAX, Caller
from meta_service.namespace.permissions import SEARCH, require
from meta_service.namespace.tree import Tree

LINKS_MAX: Final = 40


class Place(NamedTuple):
    """Where a path leads.

    Attributes:
        directory: the directory that holds the last component.
        name: the last component; "" when the path names `base` or the root themselves, "." or
            ".." when it ends so. Such a place always has an inode.
        inode: what is there now.
        is_directory_wanted: the path ends in a slash, so only a directory can be meant.
    """

    directory: Inode
    name: str
    inode: Inode | None
    is_directory_wanted: bool

    @property
    def has_name(self) -> bool:
        """Whether the last component is an entry that can be made, moved or taken away."""
        return self.name not in ("", ".", "..")


def resolve(tree: Tree, caller: Caller, base: InodeId, path: str, *, follow: bool) -> Place:
    """The place that `path` names, whether or not something is there.

    Args:
        follow: whether a symbolic link as the last component is followed. With a slash after it,
            it always is.

    Raises:
        NotFound: `base` or a component before the last does not exist.
        NotADirectory: a component before the last, or one with a slash behind it, is none.
        PermissionDenied: a directory on the way may not be searched.
        InvalidArgument: ELOOP, ENAMETOOLONG, or a zero byte in the path.
    """
    check_path(path)
    start = tree.inode(ROOT_INODE if path.startswith("/") else base)
    directory, name = start, ""
    inode: Inode | None = start
    pending = _components(path)
    is_directory_wanted = path.endswith("/")
    links = 0
    while pending:
        if inode is None:
            raise from_errno(errno.ENOENT, path)
        directory, name = inode, pending.pop()
        inode = _child(tree, caller, directory, name, path)
        if inode is None or inode.kind is not Kind.SYMLINK:
            continue
        if pending or follow or is_directory_wanted:
            links += 1
            if links > LINKS_MAX:
                raise from_errno(errno.ELOOP, path)
            is_directory_wanted |= not pending and inode.target.endswith("/")
            pending += _components(inode.target)
            start = tree.inode(ROOT_INODE) if inode.target.startswith("/") else directory
            directory, name, inode = start, "", start
    if is_directory_wanted and inode is not None and inode.kind is not Kind.DIRECTORY:
        raise from_errno(errno.ENOTDIR, path)
    return Place(directory, name, inode, is_directory_wanted)


def existing(tree: Tree, caller: Caller, base: InodeId, path: str, *, follow: bool) -> Inode:
    """The inode at `path`; as `resolve`, and NotFound when nothing is there."""
    inode = resolve(tree, caller, base, path, follow=follow).inode
    if inode is None:
        raise from_errno(errno.ENOENT, path)
    return inode


def check_path(path: str) -> None:
    """Raises InvalidArgument for a path that no file can have."""
    if len(path) * 4 > PATH_MAX and len(path.encode()) > PATH_MAX:
        raise from_errno(errno.ENAMETOOLONG, f"{path[:64]}...")
    if "\0" in path:
        raise InvalidArgument(f"{path!r}: a path cannot hold a zero byte")


def _components(path: str) -> list[str]:
    """Names of the path, last one first."""
    if "/" not in path:
        return [path] if path else []
    return [name for name in reversed(path.split("/")) if name]


def _child(tree: Tree, caller: Caller, directory: Inode, name: str, path: str) -> Inode | None:
    """One component further."""
    if directory.kind is not Kind.DIRECTORY:
        raise from_errno(errno.ENOTDIR, path)
    if len(name) * 4 > NAME_MAX and len(name.encode()) > NAME_MAX:
        raise from_errno(errno.ENAMETOOLONG, path)
    require(directory, caller, SEARCH, path)
    if name == ".":
        return directory
    if name == "..":
        return tree.inode(InodeId(directory.parent))
    return tree.child(directory.id, name)
