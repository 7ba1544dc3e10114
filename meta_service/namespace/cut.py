"""Changing a file's length by truncation, as a metadata transaction that chunks follow.

The transaction sets the length, raises `truncate_version` and leaves the cut both in the inode
(`pending_cut`, sent along with every chunk operation, so that storage applies it first) and in the
queue of the job that visits all chunks. One cut is pending at a time: a later one at or below it
takes its place, because whatever it removes includes what the earlier one would have; a later one
above it must wait, or a chunk that has seen neither would keep bytes between the two.
"""

import errno

from msgspec.structs import replace

from fs3.errors import Busy, InvalidArgument, from_errno
from fs3.model.inode import Inode
from fs3.wire.keys import GarbageKind
from fs3.wire.metadata import Caller
from meta_service.namespace.tree import Tree

CHUNKS_MAX = 1 << 32


def cut(tree: Tree, caller: Caller, inode: Inode, length: int, path: str) -> Inode:
    """The file with exactly `length` bytes; what is new reads as zeros.

    Raises:
        InvalidArgument: EINVAL for a negative length, EFBIG beyond 2^32 chunks.
        Busy: an earlier cut below `length` is still being applied.
    """
    check_length(inode, length, path)
    now = tree.inputs.now_ns
    changed = replace(inode, length=length, mtime_ns=now, ctime_ns=now)
    if _keeps_all_bytes(tree, caller, inode, length):
        return tree.put(changed)
    if inode.pending_cut is not None and inode.pending_cut < length:
        raise Busy(f"{path}: an earlier truncation is still being applied; try again")
    changed = replace(changed, truncate_version=inode.truncate_version + 1, pending_cut=length)
    tree.queue(changed, GarbageKind.CUT, now)
    return tree.put(changed)


def check_length(inode: Inode, length: int, path: str) -> None:
    """Raises InvalidArgument when the file cannot be so long."""
    if length < 0:
        raise InvalidArgument(f"{path}: a length of {length} bytes")
    if inode.layout is not None and length > CHUNKS_MAX * inode.layout.chunk_size:
        raise from_errno(errno.EFBIG, path)


def _keeps_all_bytes(tree: Tree, caller: Caller, inode: Inode, length: int) -> bool:
    """Whether no chunk can hold a byte at or beyond `length`.

    The length in the inode covers everything but what open writers have not published yet. A client
    publishes its own before it extends a file, so only other clients' writers count then.
    """
    if length < inode.length:
        return False
    writers = tree.sessions(inode.id, limit=_WRITERS_LOOKED_AT)
    if length == inode.length:
        return not writers
    return len(writers) < _WRITERS_LOOKED_AT and all(w.client == caller.client for _, w in writers)


_WRITERS_LOOKED_AT = 64
"""With more writers than this, some are taken to be others."""
