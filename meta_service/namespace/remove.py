"""remove: take a name away; unlink, rmdir and the removal of whole trees.

A tree goes in one step: its top loses its entry and becomes background work, after every directory
below has been found to let the caller take its entries out. Root needs no look at all. For others
the look happens in this transaction, so success is never reported before the check is complete and
nothing can change in between. What is gone from the namespace at once is taken apart later: files
of the tree that have another name elsewhere count one link too many until then.
"""

import errno
import stat

from msgspec.structs import replace

from fs3.errors import NotEmpty, from_errno
from fs3.model.inode import Inode, Kind
from fs3.wire.keys import GarbageKind
from fs3.wire.metadata import Caller, Empty, Remove
from meta_service.namespace.permissions import (
    CHANGE_ENTRIES,
    READ,
    is_stuck,
    not_permitted,
    require,
    require_unlink,
)
from meta_service.namespace.release import release
from meta_service.namespace.resolve import Place, resolve
from meta_service.namespace.tree import Tree

_PAGE = 1024


def remove(tree: Tree, caller: Caller, request: Remove) -> Empty:
    """Raises:
    NotFound: nothing is there.
    InvalidArgument: EINVAL for ".", EBUSY for the root.
    NotEmpty: a directory with entries, without `recursive`; or ".."; or a tree with more entries
        than may be checked in one step.
    NotADirectory, IsADirectory: `kind` asks for the other one.
    PermissionDenied: EACCES or EPERM, with `recursive` also of anything below.
    """
    place = resolve(tree, caller, request.base, request.path, follow=False)
    inode = _check(caller, place, request)
    is_directory = inode.kind is Kind.DIRECTORY
    if is_directory and not tree.is_empty(inode.id):
        if not request.recursive:
            raise from_errno(errno.ENOTEMPTY, request.path)
        _check_below(tree, caller, inode, request.path)
        tree.put(replace(inode, nlink=0, parent=0, ctime_ns=tree.inputs.now_ns))
        tree.queue(inode, GarbageKind.SUBTREE, tree.inputs.now_ns)
    else:
        release(tree, inode)
    tree.drop_entry(place.directory.id, place.name)
    tree.touch(place.directory.id, links=-1 if is_directory else 0)
    return Empty()


def _check(caller: Caller, place: Place, request: Remove) -> Inode:
    """What is at the place, if it may go as far as itself and its directory are concerned."""
    if place.name == ".":
        raise from_errno(errno.EINVAL, request.path)
    if place.name == "..":
        raise from_errno(errno.ENOTEMPTY, request.path)
    if not place.name:
        raise from_errno(errno.EBUSY, request.path or "/")
    if place.inode is None:
        raise from_errno(errno.ENOENT, request.path)
    is_directory = place.inode.kind is Kind.DIRECTORY
    if request.kind is Kind.DIRECTORY and not is_directory:
        raise from_errno(errno.ENOTDIR, request.path)
    if request.kind is Kind.FILE and is_directory:
        raise from_errno(errno.EISDIR, request.path)
    require_unlink(place.directory, place.inode, caller, request.path)
    return place.inode


def _check_below(tree: Tree, caller: Caller, top: Inode, path: str) -> None:
    """Whether the caller may take every entry out of `top` and of all directories below it."""
    if caller.uid == 0:
        return
    pending, looked_at = [top], 0
    while pending:
        directory, after = pending.pop(), ""
        while page := tree.entries(directory.id, after=after, limit=_PAGE):
            looked_at += len(page)
            if looked_at > tree.inputs.entries_checked_max:
                raise NotEmpty(f"{path}: too large to check at once; remove its parts first")
            require(directory, caller, READ | CHANGE_ENTRIES, f"{path}: inode {directory.id}")
            is_sticky = bool(directory.mode & stat.S_ISVTX)
            for name, entry in page:
                if not is_sticky and entry.kind is not Kind.DIRECTORY:
                    continue
                child = tree.named(entry)
                if is_stuck(directory, child, caller):
                    raise not_permitted(f"{path}: {name}")
                if child.kind is Kind.DIRECTORY:
                    pending.append(child)
            after = page[-1][0]
