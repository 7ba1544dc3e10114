"""Which clients are gone, so that their write sessions may be ended for them.

Ending a session of a client that still writes would lose nothing (what it acknowledged is found in
the chunks), but its next sync would fail. So a client is gone only after every look at it during a
grace period found it dead; one sign of life starts the count anew, and so does a restart of the
process that counts.
"""

from collections.abc import Callable, Iterable
from typing import Final


class Presence:
    """Args:
    grace_s: how long a client must have been dead at every look.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s: Final = grace_s
        self._dead_since: dict[int, float] = {}

    def gone(
        self, holders: Iterable[int], is_dead: Callable[[int], bool], now_s: float
    ) -> frozenset[int]:
        """Those of `holders`, the clients with sessions, that are gone.

        Args:
            is_dead: whether nothing was heard of a client for long enough.
            now_s: of a clock that never goes back.
        """
        self._dead_since = {
            client: self._dead_since.get(client, now_s)
            for client in set(holders)
            if is_dead(client)
        }
        return frozenset(
            client for client, since in self._dead_since.items() if now_s - since >= self._grace_s
        )
