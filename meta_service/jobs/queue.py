"""The queues of background work in the key-value store, one per kind, ordered by when it is due."""

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from fs3.config.metadata import JobsConfig
from fs3.units import NANOSECONDS_PER_SECOND
from fs3.wire import keys, records
from fs3.wire.keys import GarbageKey, GarbageKind
from fs3.wire.records import GarbageRecord
from meta_service.kv.transaction import Engine, Transaction

_LOOKS_AHEAD_MAX: Final = 256


class Work(NamedTuple):
    key: GarbageKey
    record: GarbageRecord


class Queue:
    """Args:
    engine: where the records are.
    kind: which of them.
    now_ns: wall clock, as in the keys.
    config: pauses before retries.
    """

    def __init__(
        self, engine: Engine, kind: GarbageKind, now_ns: Callable[[], int], config: JobsConfig
    ) -> None:
        self._engine: Final = engine
        self._kind: Final = kind
        self._now_ns: Final = now_ns
        self._config: Final = config
        self._from_ns = 0
        self._looks_ahead = 0

    def due(self, limit: int) -> list[Work]:
        """The oldest work that is due, at most `limit`.

        Begins at the time that work was found for last: what was due before is done, and an ordered
        store would have to step over the remains of all of it. Now and then it begins at the start,
        in case a clock that was set back has put work there.
        """
        begin, end = keys.garbage_due(self._kind, self._from_ns, self._now_ns())
        pairs = self._engine.transact(lambda t: t.scan(begin, end, limit=limit))
        self._looks_ahead += 1
        works = [Work(keys.parse_garbage(k), records.GARBAGE.decode(v)) for k, v in pairs]
        if works:
            self._from_ns = works[0].key.due_ns
        elif self._looks_ahead > _LOOKS_AHEAD_MAX:
            self._from_ns, self._looks_ahead = 0, 0
        return works

    def finish(self, transaction: Transaction, work: Work) -> None:
        transaction.clear(keys.garbage(work.key))

    def retry(self, transaction: Transaction, work: Work) -> None:
        """Puts work that failed back, later the more often it did."""
        attempts = work.record.attempts
        pause_s = min(
            self._config.retry_pause_min_s * 2 ** min(attempts, 30), self._config.retry_pause_max_s
        )
        later = work.key._replace(due_ns=self._now_ns() + int(pause_s * NANOSECONDS_PER_SECOND))
        transaction.clear(keys.garbage(work.key))
        record = replace(work.record, attempts=attempts + 1)
        transaction.set(keys.garbage(later), records.GARBAGE.encode(record))
