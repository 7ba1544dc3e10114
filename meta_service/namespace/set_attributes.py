"""set_attributes: chmod, chown and utimes in one."""

import stat

from msgspec.structs import replace

from fs3.model.inode import Inode
from fs3.wire.metadata import NOW, Caller, SetAttributes
from meta_service.namespace.permissions import (
    WRITE,
    is_member,
    is_owner,
    not_permitted,
    require,
    require_owner,
    without_privilege,
)
from meta_service.namespace.resolve import existing
from meta_service.namespace.tree import Tree


def set_attributes(tree: Tree, caller: Caller, request: SetAttributes) -> Inode:
    """All of it or nothing.

    Raises:
        PermissionDenied: EPERM for mode, owner, group or explicit times of somebody else's inode,
            for giving an inode away, and for a group the caller is not in; EACCES for setting the
            time to now without write permission.
    """
    before = existing(tree, caller, request.base, request.path, follow=request.follow)
    inode = _with_owner(before, caller, request)
    if request.mode is not None:
        inode = _with_mode(inode, caller, request)
    inode = _with_times(tree, inode, caller, request)
    if inode is before:
        return before
    return tree.put(replace(inode, ctime_ns=tree.inputs.now_ns))


def _with_owner(inode: Inode, caller: Caller, request: SetAttributes) -> Inode:
    if request.uid is None and request.gid is None:
        return inode
    uid = inode.uid if request.uid is None else request.uid
    gid = inode.gid if request.gid is None else request.gid
    require_owner(inode, caller, request.path)
    is_given_away = uid != inode.uid or (gid != inode.gid and not is_member(caller, gid))
    if is_given_away and caller.uid != 0:
        raise not_permitted(request.path)
    return replace(inode, uid=uid, gid=gid, mode=without_privilege(inode))


def _with_mode(inode: Inode, caller: Caller, request: SetAttributes) -> Inode:
    require_owner(inode, caller, request.path)
    mode = (request.mode or 0) & 0o7777
    if caller.uid != 0 and not is_member(caller, inode.gid):
        mode &= ~stat.S_ISGID
    return replace(inode, mode=mode)


def _with_times(tree: Tree, inode: Inode, caller: Caller, request: SetAttributes) -> Inode:
    times = (request.atime_ns, request.mtime_ns)
    if times == (None, None):
        return inode
    if all(time in (None, NOW) for time in times):
        if not is_owner(inode, caller):
            require(inode, caller, WRITE, request.path)
    else:
        require_owner(inode, caller, request.path)
    atime, mtime = (tree.inputs.now_ns if time == NOW else time for time in times)
    return replace(
        inode,
        atime_ns=inode.atime_ns if atime is None else atime,
        mtime_ns=inode.mtime_ns if mtime is None else mtime,
    )
