"""The root directory, made once when a cluster's metadata is formatted."""

from fs3.ids import ROOT_INODE
from fs3.model.inode import Inode, Kind, Layout
from meta_service.namespace.tree import Tree


def create_root(tree: Tree, layout: Layout, mode: int = 0o777) -> Inode:
    """The root; made with `layout` as the default for everything below if it is not there yet.

    It belongs to uid 0, and like /tmp lets everybody make entries unless `mode` says otherwise.
    """
    existing = tree.find(ROOT_INODE)
    if existing is not None:
        return existing
    now = tree.inputs.now_ns
    return tree.make(
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
