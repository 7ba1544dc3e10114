"""What an open file tells the namespace about itself: its length and the time of its last write."""

from msgspec.structs import replace

from fs3.errors import InvalidArgument, StaleHandle
from fs3.model.inode import Inode
from fs3.wire.metadata import Caller, Close, Sync
from meta_service.namespace.cut import check_length
from meta_service.namespace.tree import Tree


def writer_inode(tree: Tree, caller: Caller, request: Close | Sync) -> Inode:
    """The inode of the caller's write session.

    Raises:
        NotFound: the inode is gone.
        StaleHandle: there is no such session of this client; it was closed, or pruned after the
            client was taken for dead.
    """
    inode = tree.inode(request.inode)
    session = tree.session(request.inode, request.session)
    if session is None or session.client != caller.client:
        raise StaleHandle(f"inode {request.inode}: write session {request.session} has ended")
    return inode


def merged(tree: Tree, inode: Inode, request: Close | Sync) -> Inode:
    """The inode with a writer's length merged by maximum and its time taken over.

    A time counts if it is later than the last change of the inode, so that a modification time set
    by hand after the write stays. A length of another truncate version says nothing about this one.

    Raises:
        InvalidArgument: a length that no file can have, or of a cut that never was.
    """
    if request.truncate_version > inode.truncate_version:
        raise InvalidArgument(
            f"inode {inode.id} is at truncate version {inode.truncate_version}, "
            f"not yet {request.truncate_version}"
        )
    if request.length is not None and request.truncate_version == inode.truncate_version:
        check_length(inode, request.length, f"inode {inode.id}")
        if request.length > inode.length:
            inode = replace(inode, length=request.length)
    if request.mtime_ns is not None:
        written = min(request.mtime_ns, tree.inputs.now_ns)
        if written > inode.ctime_ns:
            inode = replace(inode, mtime_ns=written, ctime_ns=written)
    return inode
