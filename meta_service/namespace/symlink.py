"""symlink: make a symbolic link."""

import errno

from fs3.errors import from_errno
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import Caller, Symlink
from meta_service.namespace.create import create, require_room
from meta_service.namespace.resolve import check_path, resolve
from meta_service.namespace.tree import Tree


def symlink(tree: Tree, caller: Caller, request: Symlink) -> Inode:
    """Raises InvalidArgument (ENAMETOOLONG) or NotFound (empty) when the target is no path."""
    check_path(request.target)
    if not request.target:
        raise from_errno(errno.ENOENT, f"{request.path}: the target of a link")
    place = resolve(tree, caller, request.base, request.path, follow=False)
    require_room(caller, place, request.path)
    if place.is_directory_wanted:
        raise from_errno(errno.ENOENT, request.path)
    return create(tree, caller, place, Kind.SYMLINK, mode=0o777, target=request.target)
