"""Writes that are not committed yet, laid over whatever is below.

An overlay is a transaction by itself: reads see its own writes first. Engines lay one over their
committed data, and a batch lays one more over its transaction for each operation, so that an
operation that fails in the middle leaves nothing behind.
"""

from bisect import bisect_left, insort
from itertools import islice
from typing import Final, Protocol

Pair = tuple[bytes, bytes]

_INSERTED_ONE_BY_ONE_MAX: Final = 32
"""More fresh keys than this are sorted at once."""


class Readable(Protocol):
    """What an overlay needs from below; every `Transaction` has it."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_snapshot(self, key: bytes) -> bytes | None: ...

    def scan(
        self, begin: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> list[Pair]: ...

    def add_read_conflict(self, key: bytes) -> None: ...


class Writable(Protocol):
    def set(self, key: bytes, value: bytes) -> None: ...

    def clear(self, key: bytes) -> None: ...

    def clear_range(self, begin: bytes, end: bytes) -> None: ...


class Overlay:
    """A transaction over `below`.

    Attributes:
        writes: what a key became, None when it was cleared. Wins over `cleared`.
        cleared: ranges [begin, end) cleared before those writes.
    """

    __slots__ = ("_below", "_order", "cleared", "writes")

    def __init__(self, below: Readable) -> None:
        self._below: Final = below
        self._order: list[bytes] = []
        self.writes: dict[bytes, bytes | None] = {}
        self.cleared: list[tuple[bytes, bytes]] = []

    def get(self, key: bytes) -> bytes | None:
        if key in self.writes:
            return self.writes[key]
        if self.cleared and self._is_cleared(key):
            return None
        return self._below.get(key)

    def get_snapshot(self, key: bytes) -> bytes | None:
        if key in self.writes:
            return self.writes[key]
        if self.cleared and self._is_cleared(key):
            return None
        return self._below.get_snapshot(key)

    def scan(self, begin: bytes, end: bytes, *, limit: int, reverse: bool = False) -> list[Pair]:
        if not self.writes and not self.cleared:
            return self._below.scan(begin, end, limit=limit, reverse=reverse)
        found: list[Pair] = []
        for part in self._visible(begin, end, reverse):
            if len(found) >= limit:
                break
            found += self._scan_below(*part, limit - len(found), reverse)
        own = [
            (key, value) for key in self._own(begin, end) if (value := self.writes[key]) is not None
        ]
        if own:
            found = sorted(found + own, reverse=reverse)
        return found[:limit]

    def set(self, key: bytes, value: bytes) -> None:
        self.writes[key] = value

    def clear(self, key: bytes) -> None:
        self.writes[key] = None

    def clear_range(self, begin: bytes, end: bytes) -> None:
        for key in self._own(begin, end):
            del self.writes[key]
        self._order.clear()
        if begin < end:
            self.cleared.append((begin, end))

    def add_read_conflict(self, key: bytes) -> None:
        self._below.add_read_conflict(key)

    @property
    def is_empty(self) -> bool:
        return not self.writes and not self.cleared

    def apply_to(self, target: Writable) -> None:
        """Repeats everything written here on `target`."""
        for begin, end in self.cleared:
            target.clear_range(begin, end)
        for key, value in self.writes.items():
            if value is None:
                target.clear(key)
            else:
                target.set(key, value)

    def _is_cleared(self, key: bytes) -> bool:
        return any(begin <= key < end for begin, end in self.cleared)

    def _own(self, begin: bytes, end: bytes) -> list[bytes]:
        """Keys written here in [begin, end), sorted."""
        fresh = len(self.writes) - len(self._order)
        if fresh > _INSERTED_ONE_BY_ONE_MAX:
            self._order = sorted(self.writes)
        else:
            for key in islice(reversed(self.writes), fresh):
                insort(self._order, key)
        return self._order[bisect_left(self._order, begin) : bisect_left(self._order, end)]

    def _visible(self, begin: bytes, end: bytes, reverse: bool) -> list[tuple[bytes, bytes]]:
        """The parts of [begin, end) that no cleared range covers, in the order of the scan."""
        parts = []
        for clear_begin, clear_end in sorted(self.cleared):
            if clear_begin >= end:
                break
            if begin < clear_begin:
                parts.append((begin, clear_begin))
            begin = max(begin, clear_end)
        if begin < end:
            parts.append((begin, end))
        return parts[::-1] if reverse else parts

    def _scan_below(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Pair]:
        """The first `limit` pairs that are not overwritten here, or more, or all there are."""
        own = len(self._own(begin, end))
        pairs = self._below.scan(begin, end, limit=limit + own, reverse=reverse)
        return [pair for pair in pairs if pair[0] not in self.writes] if own else pairs
