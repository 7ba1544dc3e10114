"""An engine in memory with real optimistic concurrency, for tests and simulation.

Multi-version: a transaction reads the snapshot it began with, whatever commits meanwhile. At commit
its read-conflict set is compared with everything committed since that snapshot; an overlap throws
the attempt away. That is the behaviour of the large engines, which a lock would hide.
"""

import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from fs3.errors import Conflict, Unavailable
from meta_service.kv.overlay import Overlay, Pair
from meta_service.kv.transaction import Transaction

T = TypeVar("T")

ATTEMPTS_MAX: Final = 32


class _Commit(NamedTuple):
    version: int
    writes: frozenset[bytes]
    cleared: tuple[tuple[bytes, bytes], ...]


class _Snapshot:
    """Reads at one version, remembering what was read."""

    def __init__(self, engine: "MemoryEngine", version: int) -> None:
        self._engine: Final = engine
        self.version: Final = version
        self.keys: set[bytes] = set()
        self.ranges: list[tuple[bytes, bytes]] = []

    def get(self, key: bytes) -> bytes | None:
        self.keys.add(key)
        return self._engine.read(key, self.version)

    def get_snapshot(self, key: bytes) -> bytes | None:
        return self._engine.read(key, self.version)

    def scan(self, begin: bytes, end: bytes, *, limit: int, reverse: bool = False) -> list[Pair]:
        pairs = self._engine.read_range(begin, end, self.version, limit, reverse)
        if len(pairs) < limit:
            self.ranges.append((begin, end))
        elif pairs:
            last = pairs[-1][0]
            self.ranges.append((last, end) if reverse else (begin, last + b"\0"))
        return pairs

    def add_read_conflict(self, key: bytes) -> None:
        self.keys.add(key)

    def overlaps(self, commit: _Commit) -> bool:
        return (
            not self.keys.isdisjoint(commit.writes)
            or any(b <= key < e for b, e in self.ranges for key in commit.writes)
            or any(b <= key < e for b, e in commit.cleared for key in self.keys)
            or any(b < f and c < e for b, e in self.ranges for c, f in commit.cleared)
        )


class MemoryEngine:
    """Safe to call from any thread; bodies of different threads run at the same time."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._history: Final[dict[bytes, list[tuple[int, bytes | None]]]] = {}
        self._order: Final[list[bytes]] = []
        self._commits: Final[list[_Commit]] = []
        self._readers: Final[Counter[int]] = Counter()
        self._version = 0
        self._closed = False

    def transact(self, body: Callable[[Transaction], T], *, sync: bool = False) -> T:  # noqa: ARG002
        for _ in range(ATTEMPTS_MAX):
            snapshot = self._begin()
            try:
                overlay = Overlay(snapshot)
                result = body(overlay)
                if self._commit(snapshot, overlay):
                    return result
            finally:
                self._end(snapshot)
        raise Conflict(f"the transaction lost against others {ATTEMPTS_MAX} times; try again")

    def sync(self) -> None:
        """Nothing to do: memory has no media."""

    def close(self) -> None:
        self._closed = True

    def read(self, key: bytes, version: int) -> bytes | None:
        """The value of `key` as of `version`."""
        with self._lock:
            return self._read(key, version)

    def read_range(
        self, begin: bytes, end: bytes, version: int, limit: int, reverse: bool
    ) -> list[Pair]:
        """Pairs of [begin, end) as of `version`, at most `limit`."""
        with self._lock:
            keys = self._order[bisect_left(self._order, begin) : bisect_left(self._order, end)]
            found: list[Pair] = []
            for key in reversed(keys) if reverse else keys:
                if len(found) == limit:
                    break
                value = self._read(key, version)
                if value is not None:
                    found.append((key, value))
            return found

    def _read(self, key: bytes, version: int) -> bytes | None:
        for written, value in reversed(self._history.get(key, ())):
            if written <= version:
                return value
        return None

    def _begin(self) -> _Snapshot:
        with self._lock:
            if self._closed:
                raise Unavailable("the metadata store is closed")
            self._readers[self._version] += 1
            return _Snapshot(self, self._version)

    def _end(self, snapshot: _Snapshot) -> None:
        with self._lock:
            self._readers[snapshot.version] -= 1
            if not self._readers[snapshot.version]:
                del self._readers[snapshot.version]
                self._forget(min(self._readers, default=self._version))

    def _commit(self, snapshot: _Snapshot, overlay: Overlay) -> bool:
        """Whether it went through; a transaction that wrote nothing always does."""
        if overlay.is_empty:
            return True
        with self._lock:
            later = (c for c in self._commits if c.version > snapshot.version)
            if any(snapshot.overlaps(commit) for commit in later):
                return False
            self._version += 1
            writes = self._resolve(overlay)
            for key, value in writes.items():
                if key not in self._history:
                    self._history[key] = []
                    insort(self._order, key)
                self._history[key].append((self._version, value))
            self._commits.append(_Commit(self._version, frozenset(writes), tuple(overlay.cleared)))
            return True

    def _resolve(self, overlay: Overlay) -> dict[bytes, bytes | None]:
        """The overlay's writes with its cleared ranges spelled out key by key."""
        writes: dict[bytes, bytes | None] = {}
        for begin, end in overlay.cleared:
            first, last = bisect_left(self._order, begin), bisect_left(self._order, end)
            writes.update(dict.fromkeys(self._order[first:last]))
        return writes | overlay.writes

    def _forget(self, oldest: int) -> None:
        """Drops versions and commits that no reader at `oldest` or later can need."""
        touched = set[bytes]()
        while self._commits and self._commits[0].version <= oldest:
            touched |= self._commits.pop(0).writes
        for key in touched:
            history = self._history[key]
            while len(history) > 1 and history[1][0] <= oldest:
                del history[0]
            if len(history) == 1 and history[0][0] <= oldest and history[0][1] is None:
                del self._history[key]
                del self._order[bisect_left(self._order, key)]
