"""sync: publish length and time of an open file, as fsync does; the service also syncs its log."""

from fs3.errors import StaleHandle
from fs3.model.inode import Inode
from fs3.wire.metadata import Caller, Sync
from meta_service.namespace.publish import merged, writer_inode
from meta_service.namespace.tree import Tree


def sync(tree: Tree, caller: Caller, request: Sync) -> Inode:
    """Raises StaleHandle when the file was cut since the caller last looked: what it wrote under
    the old truncate version may be gone, and it must learn the new one."""
    before = writer_inode(tree, caller, request)
    inode = merged(tree, before, request)
    if request.length is not None and request.truncate_version < inode.truncate_version:
        raise StaleHandle(f"inode {inode.id} was truncated; reopen it")
    if inode is not before:
        tree.put(inode)
    return inode
