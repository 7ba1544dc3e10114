"""open: find or make a file, and begin a write session when it is to be written."""

import errno
import os

from msgspec.structs import replace

from fs3.errors import from_errno
from fs3.ids import SessionId
from fs3.model.inode import Inode, Kind
from fs3.wire.metadata import Caller, Open, Opened
from fs3.wire.records import SessionRecord
from meta_service.namespace.create import create, directory_defaults, require_room
from meta_service.namespace.cut import cut
from meta_service.namespace.permissions import READ, WRITE, require, without_privilege
from meta_service.namespace.resolve import Place, resolve
from meta_service.namespace.tree import Tree

_WANTED = {os.O_RDONLY: READ, os.O_WRONLY: WRITE, os.O_RDWR: READ | WRITE}
_CHANGING = os.O_CREAT | os.O_TRUNC
NO_SESSION = SessionId(0)


def is_mutation(request: Open) -> bool:
    """Whether the open can change anything: it may create, cut, or begin a session."""
    return bool(request.flags & _CHANGING) or request.flags & os.O_ACCMODE != os.O_RDONLY


def open_file(tree: Tree, caller: Caller, request: Open) -> Opened:
    """Raises, besides what resolving the path may raise:
    AlreadyExists: O_EXCL and something is there.
    IsADirectory: a directory is to be written or created over.
    NotADirectory: O_DIRECTORY and it is none.
    InvalidArgument: ELOOP for a symbolic link with O_NOFOLLOW; flags without meaning.
    """
    flags = request.flags
    if flags & os.O_ACCMODE not in _WANTED or (flags & os.O_CREAT and flags & os.O_DIRECTORY):
        raise from_errno(errno.EINVAL, f"{request.path}: open flags {flags:#o}")
    is_exclusive = bool(flags & os.O_CREAT and flags & os.O_EXCL)
    follow = not (flags & os.O_NOFOLLOW or is_exclusive)
    place = resolve(tree, caller, request.base, request.path, follow=follow)
    if place.inode is None and flags & os.O_CREAT:
        inode = _create(tree, caller, place, request)
        return Opened(inode, _begin(tree, caller, inode, flags), created=True)
    if is_exclusive:
        raise from_errno(errno.EEXIST, request.path)
    inode = _check(caller, place, request)
    if flags & os.O_TRUNC and inode.kind is Kind.FILE:
        inode = cut(tree, caller, inode, 0, request.path)
    session = _begin(tree, caller, inode, flags)
    if session and caller.uid != 0 and (mode := without_privilege(inode)) != inode.mode:
        inode = tree.put(replace(inode, mode=mode))
    return Opened(inode, session)


def _create(tree: Tree, caller: Caller, place: Place, request: Open) -> Inode:
    if place.is_directory_wanted:
        raise from_errno(errno.EISDIR, request.path)
    require_room(caller, place, request.path)
    template = request.layout or directory_defaults(place.directory)
    layout = tree.inputs.layout_of_new_file(template)
    return create(tree, caller, place, Kind.FILE, mode=request.mode, layout=layout)


def _check(caller: Caller, place: Place, request: Open) -> Inode:
    """The existing inode, if the caller may open it as asked."""
    flags, inode = request.flags, place.inode
    if inode is None:
        raise from_errno(errno.ENOENT, request.path)
    if inode.kind is Kind.SYMLINK:
        raise from_errno(errno.ELOOP, request.path)
    wanted = _WANTED[flags & os.O_ACCMODE] | (WRITE if flags & os.O_TRUNC else 0)
    if inode.kind is Kind.DIRECTORY and (wanted & WRITE or flags & os.O_CREAT):
        raise from_errno(errno.EISDIR, request.path)
    if inode.kind is not Kind.DIRECTORY and flags & os.O_DIRECTORY:
        raise from_errno(errno.ENOTDIR, request.path)
    require(inode, caller, wanted, request.path)
    return inode


def _begin(tree: Tree, caller: Caller, inode: Inode, flags: int) -> SessionId:
    """A write session, or none for an open that only reads."""
    if flags & os.O_ACCMODE == os.O_RDONLY:
        return NO_SESSION
    session = SessionId(tree.inputs.dice.getrandbits(63) | 1)
    tree.put_session(inode.id, session, SessionRecord(caller.client, tree.inputs.now_ns))
    return session
