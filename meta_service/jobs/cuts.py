"""cuts: let the chunks of truncated files follow.

Until all have, the inode carries the cut (`pending_cut`) and so does every chunk operation, so
readers never wait for this job and never see a byte beyond the cut.
"""

import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from fs3.config.metadata import JobsConfig
from fs3.errors import Fs3Error
from fs3.model.inode import Inode
from fs3.wire.keys import GarbageKind
from meta_service.jobs.chunks import Chunks, StoredFile
from meta_service.jobs.queue import Queue, Work
from meta_service.kv.transaction import Engine, Transaction
from meta_service.namespace.inputs import Inputs
from meta_service.namespace.tree import Tree

_log = logging.getLogger(__name__)


class Cuts:
    """Args as of `Garbage`."""

    def __init__(
        self, engine: Engine, chunks: Chunks, inputs: Callable[[], Inputs], config: JobsConfig
    ) -> None:
        self._engine: Final = engine
        self._chunks: Final = chunks
        self._inputs: Final = inputs
        self._config: Final = config
        self._queue: Final = Queue(engine, GarbageKind.CUT, lambda: inputs().now_ns, config)

    def step(self) -> float:
        """A page of cuts; how long to wait before the next step, in seconds."""
        works = self._queue.due(self._config.page)
        for work in works:
            self._apply(work)
        return 0.0 if works else self._config.poll_s

    def _apply(self, work: Work) -> None:
        inode = self._engine.transact(lambda t: _current(Tree(t, self._inputs()), work))
        if inode is not None and inode.layout is not None and inode.pending_cut is not None:
            cut = StoredFile(inode.id, inode.layout, inode.pending_cut, work.key.version)
            try:
                self._chunks.cut(cut)
            except Fs3Error as error:
                _log.warning("chunks of inode %d are not cut yet: %s", inode.id, error)
                self._engine.transact(lambda t: self._queue.retry(t, work))
                return
        self._engine.transact(lambda t: self._finish(t, work))

    def _finish(self, transaction: Transaction, work: Work) -> None:
        tree = Tree(transaction, self._inputs())
        inode = _current(tree, work)
        if inode is not None:
            tree.put(replace(inode, pending_cut=None))
        self._queue.finish(transaction, work)


def _current(tree: Tree, work: Work) -> Inode | None:
    """The inode, unless it was removed or cut again: then others have the work."""
    inode = tree.find(work.key.inode)
    return inode if inode is not None and inode.truncate_version == work.key.version else None
