"""statfs: how much the cluster holds."""

from fs3.wire.metadata import Caller, FsStatistics, StatFs
from meta_service.namespace.counters import count_inodes
from meta_service.namespace.tree import Tree


def statfs(tree: Tree, caller: Caller, request: StatFs) -> FsStatistics:  # noqa: ARG001
    """Bytes as last heard from the storage nodes; inodes as of the batches before this one."""
    space = tree.inputs.space()
    return FsStatistics(
        capacity_bytes=space.capacity_bytes,
        used_bytes=space.capacity_bytes - space.free_bytes,
        free_bytes=space.free_bytes,
        inodes=count_inodes(tree.transaction),
    )
