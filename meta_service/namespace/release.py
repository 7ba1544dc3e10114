"""Taking a name off an inode, and what happens when the last one is gone.

A file without names lives on while somebody has it open for writing; then, in the transaction that
ends its last reason to live, its inode makes way for a record of background work that removes its
chunks. Nothing is ever only in memory on that way, so no chunk is forgotten.
"""

from msgspec.structs import replace

from fs3.model.inode import Inode, Kind
from fs3.wire.keys import GarbageKind
from meta_service.namespace.tree import Tree


def release(tree: Tree, inode: Inode) -> None:
    """One entry of a file or symbolic link was dropped, or an empty directory's only one."""
    now = tree.inputs.now_ns
    if inode.kind is Kind.DIRECTORY:
        tree.drop(inode.id)
        return
    remaining = replace(inode, nlink=inode.nlink - 1, ctime_ns=now)
    if remaining.nlink > 0 or (inode.kind is Kind.FILE and tree.sessions(inode.id, limit=1)):
        tree.put(remaining)
    else:
        discard(tree, remaining)


def discard(tree: Tree, inode: Inode) -> None:
    """Nothing names the inode and nobody writes to it."""
    tree.drop(inode.id)
    if inode.kind is Kind.FILE:
        tree.queue(inode, GarbageKind.FILE, tree.inputs.now_ns + tree.inputs.garbage_delay_ns)
