"""link: another name for a file."""

import errno

from msgspec.structs import replace

from fs3.errors import from_errno
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import Caller, Link
from meta_service.namespace.create import LINKS_MAX, require_room
from meta_service.namespace.permissions import not_permitted
from meta_service.namespace.resolve import existing, resolve
from meta_service.namespace.tree import Tree


def link(tree: Tree, caller: Caller, request: Link) -> Inode:
    """A symbolic link gets the name itself, not what it points to.

    Raises:
        PermissionDenied: EPERM for a directory.
        AlreadyExists: the new name is taken.
        NotFound: the file has no name any more.
        InvalidArgument: EMLINK beyond 2^32-1 names.
    """
    inode = existing(tree, caller, request.base, request.path, follow=False)
    place = resolve(tree, caller, request.new_base, request.new_path, follow=False)
    if inode.kind is Kind.DIRECTORY:
        raise not_permitted(request.path)
    require_room(caller, place, request.new_path)
    if place.is_directory_wanted or inode.nlink == 0:
        raise from_errno(errno.ENOENT, request.new_path)
    if inode.nlink >= LINKS_MAX:
        raise from_errno(errno.EMLINK, request.path)
    tree.put_entry(place.directory.id, place.name, inode.id, inode.kind)
    tree.touch(place.directory.id)
    return tree.put(replace(inode, nlink=inode.nlink + 1, ctime_ns=tree.inputs.now_ns))
