"""Counters in the key-value store: inode numbers, and how many inodes there are.

Inode numbers are reserved in blocks by a transaction of its own, so that making a file does not
touch a key that every other server touches too. For the same reason each server counts inodes by
itself, with one write per batch; their number is the sum.
"""

from typing import Final

from fs3.errors import Busy
from fs3.ids import ROOT_INODE, InodeId
from fs3.wire import keys, records
from fs3.wire.records import CounterRecord
from meta_service.kv.transaction import Engine, Transaction

BLOCK: Final = 1 << 16
LOW_WATER: Final = 1 << 13

_NEXT_INODE: Final = keys.counter("next-inode")
_INODES: Final = "inodes-"
_SERVERS_MAX: Final = 1 << 16


class InodeNumbers:
    """Numbers that were never given out, reserved from the store in blocks.

    What is left of a block is forgotten when it runs low or the process ends; no number is given
    twice. A block is on media before its first number is used: chunks are named by these numbers,
    and a power loss must not lead to a second file that finds the chunks of the first.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine
        self._next = 0
        self._end = 0

    def refill(self) -> None:
        """Reserves a new block when this one runs low; to be called outside transactions."""
        if self._end - self._next < LOW_WATER:
            self._next, self._end = self._engine.transact(_reserve, sync=True)

    def take(self) -> InodeId:
        """Raises Busy when one batch used up all that was reserved."""
        if self._next == self._end:
            raise Busy("the reserved inode numbers are used up; try again")
        self._next += 1
        return InodeId(self._next - 1)


def add_inodes(transaction: Transaction, server: int, delta: int) -> None:
    """Adds to this server's share of the count; it may be negative, only the sum is a count."""
    if delta:
        key = keys.counter(f"{_INODES}{server}")
        value = _read(transaction, key, 0) + delta
        transaction.set(key, records.COUNTER.encode(CounterRecord(value)))


def count_inodes(transaction: Transaction) -> int:
    begin, end = keys.prefix_range(keys.counter(_INODES))
    shares = transaction.scan(begin, end, limit=_SERVERS_MAX)
    return sum(records.COUNTER.decode(stored).value for _, stored in shares)


def _reserve(transaction: Transaction) -> tuple[int, int]:
    first = _read(transaction, _NEXT_INODE, ROOT_INODE + 1)
    transaction.set(_NEXT_INODE, records.COUNTER.encode(CounterRecord(first + BLOCK)))
    return first, first + BLOCK


def _read(transaction: Transaction, key: bytes, default: int) -> int:
    stored = transaction.get(key)
    return default if stored is None else records.COUNTER.decode(stored).value
