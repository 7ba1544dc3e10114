"""sessions: end the write sessions of clients that are gone.

Such a client may have had bytes acknowledged whose length it never published. So the chunks are
asked where the data ends, the one time that they are, and the length grows to that.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from fs3.config.metadata import JobsConfig
from fs3.errors import Fs3Error
from fs3.ids import InodeId, SessionId
from fs3.model.inode import Inode, Kind
from fs3.wire import keys, records
from meta_service.core.sessions import Presence
from meta_service.jobs.chunks import Chunks, StoredFile
from meta_service.kv.transaction import Engine, Transaction
from meta_service.namespace.counters import add_inodes
from meta_service.namespace.inputs import Inputs
from meta_service.namespace.release import discard
from meta_service.namespace.tree import Tree

_log = logging.getLogger(__name__)


class Held(NamedTuple):
    inode: InodeId
    session: SessionId
    client: int


class Sessions:
    """Args:
    engine, chunks, inputs: as of `Garbage`.
    is_dead: whether a client has been silent for too long.
    monotonic_s: a clock that is never set.
    """

    def __init__(
        self,
        engine: Engine,
        chunks: Chunks,
        inputs: Callable[[], Inputs],
        config: JobsConfig,
        *,
        is_dead: Callable[[int], bool],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._engine: Final = engine
        self._chunks: Final = chunks
        self._inputs: Final = inputs
        self._config: Final = config
        self._is_dead: Final = is_dead
        self._monotonic_s: Final = monotonic_s
        self._presence: Final = Presence(config.sessions_grace_s)

    def step(self) -> float:
        """Looks at all sessions once; how long to wait before the next step, in seconds."""
        held = self._all()
        holders = (session.client for session in held)
        gone = self._presence.gone(holders, self._is_dead, self._monotonic_s())
        for session in held:
            if session.client in gone:
                self._end(session)
        return self._config.sessions_poll_s

    def _all(self) -> list[Held]:
        begin, end = keys.prefix_range(keys.SESSION)
        found: list[Held] = []
        while True:
            first = begin
            page = self._engine.transact(
                lambda t, b=first: t.scan(b, end, limit=self._config.page)  # type: ignore[misc]
            )
            found += [
                Held(*keys.parse_session(key), records.SESSION.decode(stored).client)
                for key, stored in page
            ]
            if len(page) < self._config.page:
                return found
            begin = page[-1][0] + b"\0"

    def _end(self, held: Held) -> None:
        inode = self._engine.transact(lambda t: Tree(t, self._inputs()).find(held.inode))
        if inode is not None and inode.pending_cut is not None:
            return  # chunks may still show bytes beyond the cut: next time
        try:
            end = self._end_of_data(inode)
        except Fs3Error as error:
            _log.warning("length of inode %d is not known yet: %s", held.inode, error)
            return
        self._engine.transact(lambda t: self._prune(t, held, inode, end))
        _log.info("ended a write session of inode %d: client %d is gone", held.inode, held.client)

    def _end_of_data(self, inode: Inode | None) -> int:
        if inode is None or inode.kind is not Kind.FILE or inode.layout is None or not inode.nlink:
            return 0
        file = StoredFile(inode.id, inode.layout, inode.length, inode.truncate_version)
        return self._chunks.end_of_data(file)

    def _prune(self, transaction: Transaction, held: Held, before: Inode | None, end: int) -> None:
        tree = Tree(transaction, self._inputs())
        if tree.session(held.inode, held.session) is None:
            return
        inode = tree.find(held.inode)
        tree.drop_session(held.inode, held.session)
        if inode is None or before is None:
            return
        if inode.truncate_version == before.truncate_version and end > inode.length:
            now = tree.inputs.now_ns
            inode = tree.put(replace(inode, length=end, mtime_ns=now, ctime_ns=now))
        if inode.nlink == 0 and not tree.sessions(inode.id, limit=1):
            discard(tree, inode)
            add_inodes(transaction, 0, tree.inode_delta)
