"""replays: drop results kept for retries once no client can still be retrying.

Clients acknowledge what they have; this is for those that went away without.
"""

from collections.abc import Callable
from typing import Final

from fs3.config.metadata import JobsConfig
from fs3.units import NANOSECONDS_PER_SECOND
from fs3.wire import keys, records
from meta_service.kv.transaction import Engine, Transaction

_PASSES_PER_EXPIRY: Final = 8


class Replays:
    """Args:
    engine: where the records are.
    now_ns: wall clock, as in the records.
    """

    def __init__(self, engine: Engine, now_ns: Callable[[], int], config: JobsConfig) -> None:
        self._engine: Final = engine
        self._now_ns: Final = now_ns
        self._config: Final = config
        self._next, self._end = keys.prefix_range(keys.REPLAY)

    def step(self) -> float:
        """One page; how long to wait before the next step, in seconds."""
        last = self._engine.transact(self._drop_page)
        if last is not None:
            self._next = last + b"\0"
            return self._config.poll_s
        self._next = keys.prefix_range(keys.REPLAY).begin
        return self._config.replays_expire_s / _PASSES_PER_EXPIRY

    def _drop_page(self, transaction: Transaction) -> bytes | None:
        """Its last key, or None when it was the last page."""
        oldest = self._now_ns() - int(self._config.replays_expire_s * NANOSECONDS_PER_SECOND)
        page = transaction.scan(self._next, self._end, limit=self._config.page)
        for key, stored in page:
            if records.STAMPED.decode(stored).time_ns < oldest:
                transaction.clear(key)
        return page[-1][0] if len(page) == self._config.page else None
