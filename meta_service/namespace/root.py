"""The root directory, made once when a cluster's metadata is formatted."""

from fs3.ids import ROOT_INODE
from fs3.model.inode import Inode, Kind, Layout
from meta_service.kv.transaction import Transaction
from meta_service.namespace.counters import add_inodes
from meta_service.namespace.inputs import Inputs
from meta_service.namespace.tree import Tree


def create_root(
    transaction: Transaction, inputs: Inputs, layout: Layout, mode: int, *, server: int = 0
) -> Inode:
    """The root; made with `layout` as the default for everything below if it is not there yet.

    It belongs to uid 0; `mode` decides who else may make entries in it.
    """
    tree = Tree(transaction, inputs)
    existing = tree.find(ROOT_INODE)
    if existing is not None:
        return existing
    now = inputs.now_ns
    add_inodes(transaction, server, 1)
    return tree.put(
        Inode(
            id=ROOT_INODE,
            kind=Kind.DIRECTORY,
            mode=mode,
            uid=0,
            gid=0,
            nlink=2,
            atime_ns=now,
            mtime_ns=now,
            ctime_ns=now,
            layout=layout,
            parent=ROOT_INODE,
        )
    )
