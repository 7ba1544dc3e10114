"""The embedded engine: RocksDB in one directory, one transaction at a time.

Serializable because transactions run one after the other under a lock; each leaves as one write
batch in the write-ahead log, which survives kill -9 of the process. Power loss is survived by what
was synced: on request, and at least once per `sync_interval_s` by a thread of this engine. Syncs
wait outside the lock, so that one thread's fsync never delays another's commit.

RocksDB locks its directory, so nobody else writes these keys: values read or written are kept in a
bounded cache, which a commit updates while it holds the lock.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from fs3._native import NativeError, RocksDb
from fs3.errors import Fs3Error, Unavailable, from_number
from meta_service.kv.overlay import Overlay, Pair
from meta_service.kv.transaction import Transaction

T = TypeVar("T")

_log = logging.getLogger(__name__)


class _Committed:
    """What is in the database, through a cache of keys; used under the engine's lock."""

    def __init__(self, database: RocksDb, cached_keys_max: int) -> None:
        self._database: Final = database
        self._cached_keys_max: Final = cached_keys_max
        self._cache: Final[dict[bytes, bytes | None]] = {}

    def get(self, key: bytes) -> bytes | None:
        cache = self._cache
        if key in cache:
            return cache[key]
        try:
            value = self._database.get(key)
        except NativeError as error:
            raise _typed(error) from error
        if len(cache) >= self._cached_keys_max:
            self._make_room(1)
        cache[key] = value
        return value

    get_snapshot = get

    def scan(self, begin: bytes, end: bytes, *, limit: int, reverse: bool = False) -> list[Pair]:
        try:
            return self._database.scan(begin, end, limit, reverse) if begin < end else []
        except NativeError as error:
            raise _typed(error) from error

    def add_read_conflict(self, key: bytes) -> None:
        """Nothing to do: no other transaction runs."""

    def write(self, overlay: Overlay) -> None:
        """One batch, all or nothing; after a failure the cache knows nothing."""
        try:
            self._database.write(overlay.writes.items(), overlay.cleared)
        except NativeError as error:
            self._cache.clear()
            raise _typed(error) from error
        if overlay.cleared:
            self._cache.clear()
        self._make_room(len(overlay.writes))
        self._cache.update(overlay.writes)

    def _make_room(self, count: int) -> None:
        """Forgets the half that was cached first when `count` more would not fit."""
        if len(self._cache) + count > self._cached_keys_max:
            for key in list(self._cache)[: max(len(self._cache) // 2, count)]:
                del self._cache[key]


class RocksDbEngine:
    """Safe to call from any thread; a transaction inside a transaction is a defect."""

    def __init__(
        self, directory: str, *, cached_keys_max: int = 1 << 18, sync_interval_s: float = 1.0
    ) -> None:
        """Opens or creates the store in `directory`.

        Raises:
            Busy: another process has it open.
            Corrupt, NoSpace, PermissionDenied: as their names say.
        """
        self._database: Final = _open(directory)
        self._committed: Final = _Committed(self._database, cached_keys_max)
        self._lock: Final = threading.Lock()
        self._owner: int | None = None
        self._is_synced = True
        self._closing: Final = threading.Event()
        self._syncer: Final = threading.Thread(
            target=self._sync_regularly, args=(sync_interval_s,), name="kv-sync", daemon=True
        )
        self._syncer.start()

    def transact(self, body: Callable[[Transaction], T], *, sync: bool = False) -> T:
        assert self._owner != threading.get_ident(), "a transaction inside a transaction"
        with self._lock:
            self._owner = threading.get_ident()
            try:
                result = self._run(body)
            finally:
                self._owner = None
        if sync:
            self.sync()
        return result

    def sync(self) -> None:
        self._is_synced = True
        try:
            self._database.sync_wal()
        except NativeError as error:
            self._is_synced = False
            raise _typed(error) from error

    def close(self) -> None:
        """Syncs and releases the directory; closing twice does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._syncer.join()
        with self._lock:
            self.sync()
            self._database.close()

    def _run(self, body: Callable[[Transaction], T]) -> T:
        if self._closing.is_set():
            raise Unavailable("the metadata store is closed")
        overlay = Overlay(self._committed)
        result = body(overlay)
        if not overlay.is_empty:
            self._committed.write(overlay)
            self._is_synced = False
        return result

    def _sync_regularly(self, interval_s: float) -> None:
        while not self._closing.wait(interval_s):
            if self._is_synced:
                continue
            try:
                self.sync()
            except Fs3Error:
                _log.exception("metadata log could not be synced; retrying")


def _open(directory: str) -> RocksDb:
    try:
        return RocksDb.open(directory)
    except NativeError as error:
        raise _typed(error) from error


def _typed(error: NativeError) -> Fs3Error:
    return from_number(error.code, f"metadata store: {error.message}")
