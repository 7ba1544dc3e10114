"""Exactly once: the result of a mutation is recorded in the transaction that makes the change.

A client numbers its requests and repeats the number when it repeats a request. A number seen before
gets the recorded result, whether success or refusal, on whatever server it arrives. With each
request the client says up to which number it has all answers; once that has advanced by
`DROPPED_TOGETHER`, those records go and the floor takes their place, which refuses a copy of such a
request that was delayed in the network for so long.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from fs3.errors import InvalidArgument
from fs3.wire import keys, records
from fs3.wire.metadata import Caller
from fs3.wire.records import ReplayFloor, ReplayRecord
from meta_service.kv.transaction import Transaction

DROPPED_TOGETHER: Final = 64
_DROPPED_MAX: Final = 1024


class Reply(NamedTuple):
    """What goes back to the client: a status (0, or the number of an error kind) and a body."""

    status: int
    body: bytes


def once(
    transaction: Transaction,
    caller: Caller,
    now_ns: int,
    attempt: Callable[[], tuple[Reply, bool]],
) -> Reply:
    """The reply to the caller's request: the recorded one, else that of `attempt`.

    Args:
        attempt: runs the request; whether its reply is final, so that it must be recorded.

    Raises:
        InvalidArgument: the client has long acknowledged this request.
    """
    floor = _floor(transaction, caller)
    if caller.request <= floor:
        raise InvalidArgument(
            f"request {caller.request} of client {caller.client} was acknowledged before; "
            "this is a late copy of it"
        )
    key = keys.replay(caller.client, caller.request)
    stored = transaction.get(key)
    if stored is not None:
        record = records.REPLAY.decode(stored)
        return Reply(record.status, record.body)
    reply, is_final = attempt()
    if is_final:
        transaction.set(key, records.REPLAY.encode(ReplayRecord(now_ns, *reply)))
        if caller.acknowledged >= floor + DROPPED_TOGETHER:
            _drop(transaction, caller, now_ns, floor)
    return reply


def _floor(transaction: Transaction, caller: Caller) -> int:
    stored = transaction.get(keys.replay_floor(caller.client))
    return 0 if stored is None else records.REPLAY_FLOOR.decode(stored).floor


def _drop(transaction: Transaction, caller: Caller, now_ns: int, floor: int) -> None:
    """Records above `floor` that the caller has acknowledged; a page of them at most."""
    begin, end = keys.replays(caller.client, floor + 1, caller.acknowledged)
    found = transaction.scan(begin, end, limit=_DROPPED_MAX)
    for key, _ in found:
        transaction.clear(key)
    is_all = len(found) < _DROPPED_MAX
    dropped = caller.acknowledged if is_all else keys.replay_request(found[-1][0])
    record = ReplayFloor(now_ns, dropped)
    transaction.set(keys.replay_floor(caller.client), records.REPLAY_FLOOR.encode(record))
