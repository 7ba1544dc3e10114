"""Replies that must wait until what they confirm is on media.

A thread syncs the store and then sends all replies that waited when the sync began, so that one
fsync serves many requests and none delays the requests that do not ask for it.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from fs3.errors import Fs3Error
from meta_service.namespace.batch import error_reply
from meta_service.namespace.replay import Reply

_log = logging.getLogger(__name__)

Addressed = tuple[int, int, Reply]
"""(connection, request, reply)"""


class MediaReplies:
    """Args:
    sync: puts every commit so far on media.
    send: answers requests.
    """

    def __init__(
        self, sync: Callable[[], None], send: Callable[[Sequence[Addressed]], None]
    ) -> None:
        self._sync: Final = sync
        self._send: Final = send
        self._changed: Final = threading.Condition()
        self._waiting: list[Addressed] = []
        self._is_stopping = False
        self._thread: Final = threading.Thread(target=self._run, name="fs3-media", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, replies: Sequence[Addressed]) -> None:
        """Replies about commits that have been made; bounded by the requests in flight."""
        with self._changed:
            self._waiting.extend(replies)
            self._changed.notify()

    def stop(self) -> None:
        """Sends what waits, then ends."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while replies := self._take():
            try:
                self._sync()
            except Fs3Error as error:
                _log.error("commits are not on media: %s", error)
                replies = [(connection, n, error_reply(error)) for connection, n, _ in replies]
            self._send(replies)

    def _take(self) -> list[Addressed]:
        """All that wait; empty when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_stopping)
            replies, self._waiting = self._waiting, []
            return replies
