"""A batch of requests in one transaction, each of them all or nothing by itself.

Requests run one after the other and see what those before them did. Each mutation runs on an
overlay of its own, which joins the batch when it succeeds and vanishes when it fails; the batch
then commits as a whole, and only after that may any reply leave.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from fs3.errors import Advice, Fs3Error, Internal
from fs3.wire import metadata as wire
from fs3.wire.metadata import Caller, ErrorBody
from meta_service.kv.overlay import Overlay
from meta_service.kv.transaction import Transaction
from meta_service.namespace.close import close
from meta_service.namespace.counters import add_inodes
from meta_service.namespace.inputs import Inputs
from meta_service.namespace.link import link
from meta_service.namespace.list import list_entries
from meta_service.namespace.mkdir import mkdir
from meta_service.namespace.open import is_mutation, open_file
from meta_service.namespace.remove import remove
from meta_service.namespace.rename import rename
from meta_service.namespace.replay import Reply, once
from meta_service.namespace.set_attributes import set_attributes
from meta_service.namespace.set_layout import set_layout
from meta_service.namespace.stat import stat
from meta_service.namespace.statfs import statfs
from meta_service.namespace.symlink import symlink
from meta_service.namespace.sync import sync
from meta_service.namespace.tree import Tree
from meta_service.namespace.truncate import truncate

Operation = Callable[[Tree, Caller, Any], msgspec.Struct]

OPERATIONS: Final[dict[type[msgspec.Struct], Operation]] = {
    wire.Stat: stat,
    wire.List: list_entries,
    wire.Open: open_file,
    wire.Close: close,
    wire.Sync: sync,
    wire.Truncate: truncate,
    wire.Mkdir: mkdir,
    wire.Symlink: symlink,
    wire.Link: link,
    wire.Rename: rename,
    wire.Remove: remove,
    wire.SetAttributes: set_attributes,
    wire.SetLayout: set_layout,
    wire.StatFs: statfs,
}

_READS: Final = frozenset((wire.Stat, wire.List, wire.StatFs))

_log = logging.getLogger(__name__)
_encode: Final = msgspec.msgpack.Encoder().encode


class Call(NamedTuple):
    caller: Caller
    request: wire.Request


def run_batch(
    transaction: Transaction, inputs: Inputs, calls: Sequence[Call], *, server: int = 0
) -> list[Reply]:
    """The reply to each call, in order; valid once `transaction` has committed."""
    batch = Tree(transaction, inputs)
    replies = [_run(batch, call) for call in calls]
    add_inodes(transaction, server, batch.inode_delta)
    return replies


def error_reply(error: Fs3Error) -> Reply:
    return Reply(error.number, _encode(ErrorBody(error.errno or 0, error.message)))


def _run(batch: Tree, call: Call) -> Reply:
    try:
        if _is_read(call.request):
            return _attempt(batch, call)[0]
        return once(
            batch.transaction, call.caller, batch.inputs.now_ns, lambda: _mutate(batch, call)
        )
    except Fs3Error as error:
        return error_reply(error)


def _is_read(request: wire.Request) -> bool:
    kind = type(request)
    return kind in _READS or (isinstance(request, wire.Open) and not is_mutation(request))


def _mutate(batch: Tree, call: Call) -> tuple[Reply, bool]:
    """The reply, and whether a retry must get the same: not when it says to try again."""
    overlay = Overlay(batch.transaction)
    tree = Tree(overlay, batch.inputs)
    reply, is_final = _attempt(tree, call)
    if reply.status == 0:
        overlay.apply_to(batch.transaction)
        batch.inode_delta += tree.inode_delta
    return reply, is_final


def _attempt(tree: Tree, call: Call) -> tuple[Reply, bool]:
    try:
        result = OPERATIONS[type(call.request)](tree, *call)
    except Fs3Error as error:
        return error_reply(error), error.advice in (Advice.FIX_REQUEST, Advice.REOPEN)
    except Exception:
        name = type(call.request).__name__
        _log.exception("defect in %s, request %s", name, call.request)
        return error_reply(Internal(f"{name} failed inside; the metadata log says where")), False
    return Reply(0, _encode(result)), True
