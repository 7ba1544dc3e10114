"""garbage: take removed trees apart and remove the chunks of removed files.

Every step is a transaction that replaces one record of work by smaller ones or by none, so the work
is found again after any crash. A directory of a removed tree is first closed for new entries
(`nlink` 0), then emptied page by page; directories in it become work of their own, which keeps each
step small however deep the tree is.
"""

import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from fs3.config.metadata import JobsConfig
from fs3.errors import Fs3Error
from fs3.ids import InodeId
from fs3.model.inode import Kind
from fs3.wire.keys import GarbageKind
from meta_service.jobs.chunks import Chunks, StoredFile
from meta_service.jobs.queue import Queue, Work
from meta_service.kv.transaction import Engine, Transaction
from meta_service.namespace.counters import add_inodes
from meta_service.namespace.inputs import Inputs
from meta_service.namespace.release import release
from meta_service.namespace.tree import Tree

_log = logging.getLogger(__name__)


class Garbage:
    """Args:
    engine: the namespace.
    chunks: where the chunks of files are.
    inputs: clock and limits for the operations done here.
    """

    def __init__(
        self, engine: Engine, chunks: Chunks, inputs: Callable[[], Inputs], config: JobsConfig
    ) -> None:
        self._engine: Final = engine
        self._chunks: Final = chunks
        self._inputs: Final = inputs
        self._config: Final = config
        self._subtrees: Final = Queue(engine, GarbageKind.SUBTREE, self._now_ns, config)
        self._files: Final = Queue(engine, GarbageKind.FILE, self._now_ns, config)

    def step(self) -> float:
        """One page of each queue; how long to wait before the next step, in seconds."""
        subtrees = self._subtrees.due(1)
        for work in subtrees:
            self._engine.transact(lambda t, w=work: self._take_apart(t, w))  # type: ignore[misc]
        files = self._remove_files()
        if files:
            return files / self._config.files_per_second_max
        return 0.0 if subtrees else self._config.poll_s

    def _now_ns(self) -> int:
        return self._inputs().now_ns

    def _take_apart(self, transaction: Transaction, work: Work) -> None:
        """One page of a removed directory, or the directory itself when it is empty."""
        tree = Tree(transaction, self._inputs())
        directory = work.key.inode
        page = tree.entries(directory, limit=self._config.page)
        for name, entry in page:
            tree.drop_entry(directory, name)
            if entry.kind is Kind.DIRECTORY:
                self._close_for_entries(tree, entry.id)
            else:
                release(tree, tree.named(entry))
        if len(page) < self._config.page:
            if tree.find(directory) is not None:
                tree.drop(directory)
            self._subtrees.finish(transaction, work)
        add_inodes(transaction, 0, tree.inode_delta)

    def _close_for_entries(self, tree: Tree, directory: InodeId) -> None:
        inode = tree.put(replace(tree.inode(directory), nlink=0, parent=0))
        tree.queue(inode, GarbageKind.SUBTREE, tree.inputs.now_ns)

    def _remove_files(self) -> int:
        """Chunks of a page of removed files; how many files."""
        works = self._files.due(self._config.page)
        if not works:
            return 0
        outcomes = self._chunks.remove([_stored(work) for work in works])
        failed = [error for error in outcomes if error]
        if failed:
            _log.warning("chunks of %d removed files remain for now: %s", len(failed), failed[0])
        self._engine.transact(lambda t: self._settle(t, works, outcomes))
        return len(works)

    def _settle(
        self, transaction: Transaction, works: list[Work], outcomes: list[Fs3Error | None]
    ) -> None:
        for work, error in zip(works, outcomes, strict=True):
            if error is None:
                self._files.finish(transaction, work)
            else:
                self._files.retry(transaction, work)


def _stored(work: Work) -> StoredFile:
    layout = work.record.layout
    assert layout is not None, "a removed file has a layout"
    return StoredFile(work.key.inode, layout, work.record.length, work.key.version)
