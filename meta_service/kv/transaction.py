"""The transactional key-value interface that all metadata lives on; it models FoundationDB.

Keys and values are bytes, keys are ordered by bytes. A transaction sees a snapshot plus its own
writes. Engines: `memory`, `rocksdb`; all pass `tests/contract/test_kv.py`.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Transaction(Protocol):
    """One attempt. Use it only inside the function given to `Engine.transact`."""

    def get(self, key: bytes) -> bytes | None:
        """The value, adding `key` to the read-conflict set."""

    def get_snapshot(self, key: bytes) -> bytes | None:
        """The value, without a read conflict."""

    def scan(
        self, begin: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Pairs with begin <= key < end, at most `limit`; the range read joins the conflicts."""

    def set(self, key: bytes, value: bytes) -> None: ...

    def clear(self, key: bytes) -> None: ...

    def clear_range(self, begin: bytes, end: bytes) -> None: ...

    def add_read_conflict(self, key: bytes) -> None: ...


class Engine(Protocol):
    """A database. Safe to call from any thread."""

    def transact(self, body: Callable[[Transaction], T], *, sync: bool = False) -> T:
        """Runs `body` and commits, again on conflict, a bounded number of times.

        `body` must have no effect outside the transaction: it may run more than once. Whatever it
        raises aborts the transaction and passes through. With `sync` the commit is on media before
        this returns; without, it survives a killed process.

        Raises:
            Conflict: it lost against concurrent transactions every time.
            Unavailable: the database cannot be reached; nothing may be concluded of the commit.
        """

    def sync(self) -> None:
        """Puts every commit so far on media."""

    def close(self) -> None: ...
