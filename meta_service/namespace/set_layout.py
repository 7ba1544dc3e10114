"""set_layout: what future children of a directory get. Files keep the layout they have."""

import errno

from msgspec.structs import replace

from fs3.errors import from_errno
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import Caller, SetLayout
from meta_service.namespace.create import directory_defaults
from meta_service.namespace.inputs import with_changes
from meta_service.namespace.permissions import require_owner
from meta_service.namespace.resolve import existing
from meta_service.namespace.tree import Tree


def set_layout(tree: Tree, caller: Caller, request: SetLayout) -> Inode:
    """Raises NotADirectory, PermissionDenied (EPERM) for others than its owner, or InvalidArgument
    for a chunk size or stripe that files cannot have."""
    directory = existing(tree, caller, request.base, request.path, follow=True)
    if directory.kind is not Kind.DIRECTORY:
        raise from_errno(errno.ENOTDIR, request.path)
    require_owner(directory, caller, request.path)
    layout = with_changes(directory_defaults(directory), request.chunk_size, request.stripe)
    return tree.put(replace(directory, layout=layout, ctime_ns=tree.inputs.now_ns))
