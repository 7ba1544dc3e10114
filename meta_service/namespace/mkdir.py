"""mkdir: make a directory, and with `parents` whatever is missing above it."""

import errno

from fs3.errors import from_errno
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import Caller, Mkdir
from meta_service.namespace.create import LINKS_MAX, create, directory_defaults, require_room
from meta_service.namespace.resolve import Place, check_path, resolve
from meta_service.namespace.tree import Tree


def mkdir(tree: Tree, caller: Caller, request: Mkdir) -> Inode:
    """The new directory, or with `parents` the one that is there.

    Raises:
        AlreadyExists: something is there (with `parents`: something that is no directory).
        NotFound: a directory above is missing and `parents` is not set.
        InvalidArgument: EMLINK when the directory above holds 2^32-3 directories.
    """
    if request.parents:
        return _make_all(tree, caller, request)
    place = resolve(tree, caller, request.base, request.path, follow=False)
    return _make(tree, caller, place, request.mode, request.path)


def _make_all(tree: Tree, caller: Caller, request: Mkdir) -> Inode:
    check_path(request.path)
    start = "/" if request.path.startswith("/") else ""
    current = resolve(tree, caller, request.base, start, follow=True)
    names = [name for name in request.path.split("/") if name]
    for index, name in enumerate(names):
        assert current.inode is not None, "made or found in the step before"
        place = resolve(tree, caller, current.inode.id, name, follow=True)
        if place.inode is None:
            mode = request.mode if index == len(names) - 1 else request.mode | 0o300
            made = _make(tree, caller, place, mode, request.path)
            place = place._replace(inode=made)
        current = place
    assert current.inode is not None
    if current.inode.kind is not Kind.DIRECTORY:
        raise from_errno(errno.EEXIST, request.path)
    return current.inode


def _make(tree: Tree, caller: Caller, place: Place, mode: int, path: str) -> Inode:
    require_room(caller, place, path)
    if place.directory.nlink >= LINKS_MAX:
        raise from_errno(errno.EMLINK, path)
    defaults = directory_defaults(place.directory)
    return create(tree, caller, place, Kind.DIRECTORY, mode=mode, layout=defaults)
