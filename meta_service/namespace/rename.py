"""rename: move a name, replacing what has the new one, all or nothing.

A directory is never moved below itself: the walk from its new place up to the root reads every
ancestor in this transaction, so of two renames that together would make a loop one loses.
"""

import errno

from msgspec.structs import replace

from fs3.errors import InvalidArgument, from_errno
from fs3.ids import ROOT_INODE, InodeId
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import RENAME_NOREPLACE, Caller, Empty, Rename
from meta_service.namespace.permissions import CHANGE_ENTRIES, WRITE, require, require_unlink
from meta_service.namespace.release import release
from meta_service.namespace.resolve import Place, resolve
from meta_service.namespace.tree import Tree


def rename(tree: Tree, caller: Caller, request: Rename) -> Empty:
    """Two names of one file: nothing happens, as POSIX asks.

    Raises:
        NotFound: there is nothing to move, or the new directory was removed.
        AlreadyExists: NOREPLACE and the new name is taken.
        InvalidArgument: EINVAL for a directory below itself, EBUSY for the root, "." or "..".
        NotEmpty, NotADirectory, IsADirectory: the new name has something that cannot be replaced.
    """
    if request.flags not in (0, RENAME_NOREPLACE):
        raise InvalidArgument(f"rename flags {request.flags}: only 0 and 1 (no replace) are known")
    old = resolve(tree, caller, request.base, request.path, follow=False)
    new = resolve(tree, caller, request.new_base, request.new_path, follow=False)
    moved = _check_names(old, new, request)
    if new.inode is not None and new.inode.id == moved.id:
        return Empty()
    _check_shape(tree, moved, old, new, request)
    _check_permissions(caller, moved, old, new, request)
    if new.inode is not None and not _is_replaceable(tree, new.inode):
        raise from_errno(errno.ENOTEMPTY, request.new_path)
    _move(tree, moved, old, new)
    return Empty()


def _check_names(old: Place, new: Place, request: Rename) -> Inode:
    """What is to be moved, if both names can take part in a rename."""
    if not old.has_name:
        raise from_errno(errno.EBUSY, request.path)
    if not new.has_name:
        raise from_errno(errno.EBUSY, request.new_path)
    if old.inode is None:
        raise from_errno(errno.ENOENT, request.path)
    if new.inode is not None and request.flags & RENAME_NOREPLACE:
        raise from_errno(errno.EEXIST, request.new_path)
    if new.is_directory_wanted and old.inode.kind is not Kind.DIRECTORY:
        raise from_errno(errno.ENOTDIR, request.new_path)
    return old.inode


def _check_shape(tree: Tree, moved: Inode, old: Place, new: Place, request: Rename) -> None:
    """Whether a tree remains, and what is replaced is of the same sort."""
    if moved.kind is Kind.DIRECTORY and _is_at_or_below(tree, new.directory, moved.id):
        raise from_errno(errno.EINVAL, f"{request.new_path} is inside {request.path}")
    if new.inode is None:
        return
    if new.inode.kind is Kind.DIRECTORY and _is_at_or_below(tree, old.directory, new.inode.id):
        raise from_errno(errno.ENOTEMPTY, request.new_path)
    if moved.kind is Kind.DIRECTORY and new.inode.kind is not Kind.DIRECTORY:
        raise from_errno(errno.ENOTDIR, request.new_path)
    if moved.kind is not Kind.DIRECTORY and new.inode.kind is Kind.DIRECTORY:
        raise from_errno(errno.EISDIR, request.new_path)


def _check_permissions(
    caller: Caller, moved: Inode, old: Place, new: Place, request: Rename
) -> None:
    require_unlink(old.directory, moved, caller, request.path)
    if new.inode is not None:
        require_unlink(new.directory, new.inode, caller, request.new_path)
    else:
        require(new.directory, caller, CHANGE_ENTRIES, request.new_path)
    if new.directory.nlink == 0:
        raise from_errno(errno.ENOENT, request.new_path)
    if moved.kind is Kind.DIRECTORY and old.directory.id != new.directory.id:
        require(moved, caller, WRITE, request.path)  # its `..` changes


def _is_replaceable(tree: Tree, inode: Inode) -> bool:
    return inode.kind is not Kind.DIRECTORY or tree.is_empty(inode.id)


def _is_at_or_below(tree: Tree, directory: Inode, ancestor: InodeId) -> bool:
    current = directory
    while current.id != ancestor:
        if current.id == ROOT_INODE:
            return False
        parent = tree.find(InodeId(current.parent))
        if parent is None:
            return False
        current = parent
    return True


def _move(tree: Tree, moved: Inode, old: Place, new: Place) -> None:
    is_directory = moved.kind is Kind.DIRECTORY
    tree.drop_entry(old.directory.id, old.name)
    tree.put_entry(new.directory.id, new.name, moved.id, moved.kind)
    tree.put(
        replace(
            moved,
            ctime_ns=tree.inputs.now_ns,
            parent=new.directory.id if is_directory else 0,
        )
    )
    if new.inode is not None:
        release(tree, new.inode)
    tree.touch(old.directory.id, links=-1 if is_directory else 0)
    replaced_directory = new.inode is not None and is_directory
    tree.touch(new.directory.id, links=1 if is_directory and not replaced_directory else 0)
