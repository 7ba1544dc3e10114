"""stat: the inode at a path."""

from fs3.model.inode import Inode
from fs3.wire.metadata import Caller, Stat
from meta_service.namespace.resolve import existing
from meta_service.namespace.tree import Tree


def stat(tree: Tree, caller: Caller, request: Stat) -> Inode:
    return existing(tree, caller, request.base, request.path, follow=request.follow)
