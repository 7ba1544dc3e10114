"""truncate: set the length of a file."""

import errno

from msgspec.structs import replace

from fs3.errors import from_errno
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import Caller, Truncate
from meta_service.namespace.cut import cut
from meta_service.namespace.permissions import WRITE, require, without_privilege
from meta_service.namespace.resolve import existing
from meta_service.namespace.tree import Tree


def truncate(tree: Tree, caller: Caller, request: Truncate) -> Inode:
    """Raises what `cut` raises, and IsADirectory."""
    inode = existing(tree, caller, request.base, request.path, follow=True)
    if inode.kind is Kind.DIRECTORY:
        raise from_errno(errno.EISDIR, request.path)
    if inode.kind is not Kind.FILE:
        raise from_errno(errno.EINVAL, request.path)
    if not _has_open(tree, caller, inode, request):
        require(inode, caller, WRITE, request.path)
    if caller.uid != 0:
        inode = replace(inode, mode=without_privilege(inode))
    return cut(tree, caller, inode, request.length, request.path)


def _has_open(tree: Tree, caller: Caller, inode: Inode, request: Truncate) -> bool:
    """Whether the caller opened the file for writing, which decided about permission then."""
    session = tree.session(inode.id, request.session) if request.session else None
    return session is not None and session.client == caller.client
