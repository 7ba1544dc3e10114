"""close: end a write session and publish what it wrote."""

from fs3.model.inode import Inode
from fs3.wire.metadata import Caller, Close
from meta_service.namespace.publish import merged, writer_inode
from meta_service.namespace.release import discard
from meta_service.namespace.tree import Tree


def close(tree: Tree, caller: Caller, request: Close) -> Inode:
    """The file as it is now. A length under an older truncate version is ignored: those bytes were
    cut. A file that lost its last name while it was open goes with its last session."""
    before = writer_inode(tree, caller, request)
    inode = merged(tree, before, request)
    tree.drop_session(inode.id, request.session)
    if inode.nlink == 0 and not tree.sessions(inode.id, limit=1):
        discard(tree, inode)
    elif inode is not before:
        tree.put(inode)
    return inode
