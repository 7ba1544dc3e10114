"""A shuffled, sharded, resumable stream over any map-style data set.

The order of an epoch is a function of (seed, epoch, position); see `trainer_io.core.permutation`.
What this process reads of it follows from rank, world size and DataLoader worker; see
`trainer_io.core.sharding`. So there is nothing to exchange between processes and nothing to save
but a cursor, and what was read ahead but not delivered is simply read again after a resume.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

from fs3.units import MIB
from trainer_io.core.cursor import Cursor, Order, from_state, to_state
from trainer_io.core.permutation import Permutation
from trainer_io.core.sharding import Assignment, Shard
from trainer_io.dataset.process import current_rank, current_worker
from trainer_io.dataset.read_ahead import Block, ReadAhead
from trainer_io.dataset.samples import Indices, Samples
from trainer_io.dataset.start import SharedStart

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset
else:
    try:
        from torch.utils.data import IterableDataset
    except ImportError:  # iterating works without PyTorch; its DataLoader wants the base class

        class IterableDataset:
            def __class_getitem__(cls, item):
                return cls


T = TypeVar("T")

_ORDER_AT_ONCE: Final = 16_384
"""Positions whose samples are computed together: the order costs under 0.1 us per sample so."""

_BLOCK_SAMPLES_MAX: Final = 1_024


class StreamingDataset(IterableDataset[T], Generic[T]):
    """Samples of `data` in the global order of the epoch, this process's share of them.

        stream = StreamingDataset(ParquetDataset(path), batch_size=32, seed=7)
        for epoch in range(3):
            stream.set_epoch(epoch)
            for row in stream: ...

    With DataLoader workers use `StreamingLoader`: what workers read ahead is not consumed yet, so
    only the loader knows where training stands. Iterating again after a break goes on where it
    stopped; after the end of an epoch the next one begins.

    Args:
        data: a map-style data set such as `FileDataset`, `ParquetDataset` or `TokenDataset`.
        batch_size: of the DataLoader: workers deliver whole batches in turn.
        shuffle: False gives the stored order in every epoch.
        seed: of the shuffle.
        rank, world_size: data-parallel rank; as torch.distributed says when left out.
        repeat_tail: at the end of an epoch give every rank one sample more, from the beginning,
            instead of leaving out the last ones that do not go round.
        read_ahead_bytes: bound of samples in memory that were not delivered yet, per process.

    Raises:
        ValueError: the rank is not below the world size, or a bound is not positive.
    """

    def __init__(
        self,
        data: Samples[T],
        *,
        batch_size: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        repeat_tail: bool = False,
        read_ahead_bytes: int = 64 * MIB,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        if batch_size < 1 or read_ahead_bytes < 1:
            raise ValueError("batch_size and read_ahead_bytes are at least 1")
        self.data = data
        self.batch_size = batch_size
        self._order = Order(len(data), data.fingerprint, seed if shuffle else None)
        self._fixed_rank = None if rank is None or world_size is None else (rank, world_size)
        self._rank = self._fixed_rank or current_rank()
        Shard(*self._rank)
        self._repeat_tail = repeat_tail
        self._read_ahead_bytes = read_ahead_bytes
        self._cursor = Cursor()
        self._start = SharedStart(self._cursor)

    def __len__(self) -> int:
        """Samples that this rank delivers in a whole epoch."""
        return self._assignment(Cursor(), None).rank_count

    @property
    def epoch(self) -> int:
        return self._cursor.epoch

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of `epoch`; where the stream is in that epoch already, it stays there,
        so that a resumed job may call this too."""
        if epoch < 0:
            raise ValueError(f"epochs count from 0, not {epoch}")
        if epoch != self._cursor.epoch:
            self.move_to(Cursor(epoch))

    def state_dict(self) -> dict[str, int | str | None]:
        """Where the stream stands: JSON, under 1 KB, equal on all ranks at the same step."""
        return to_state(self._order, self._cursor)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Goes on where `state` was saved, under any world size and number of workers.

        Raises:
            ValueError: the state belongs to other data, another seed or another version.
        """
        self.move_to(from_state(self._order, state))

    def __iter__(self) -> Iterator[T]:
        worker = current_worker()
        start = self._cursor if worker is None else self._start.get()
        assignment = self._assignment(start, worker)
        with ReadAhead(self._blocks(start, assignment), self._load, self._read_ahead_bytes) as read:
            delivered = 0
            for samples in read:
                for sample in samples:
                    delivered += 1
                    if worker is None:
                        self._cursor = Cursor(start.epoch, assignment.cursor_after(delivered))
                    yield sample
        if worker is None:
            self.move_to(start.next_epoch())

    # For the loader, which counts in the main process what workers deliver.

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    def move_to(self, cursor: Cursor) -> None:
        """Sets where this process, and workers that begin an epoch from now on, go on."""
        self._cursor = cursor
        self._start.set(cursor)

    def advance_to(self, cursor: Cursor) -> None:
        """Notes how far training has come, leaving alone where workers began."""
        self._cursor = cursor

    def rank_assignment(self) -> Assignment:
        """All that this rank reads from the cursor to the end of the epoch."""
        return self._assignment(self._cursor, None)

    def _assignment(self, start: Cursor, worker: tuple[int, int] | None) -> Assignment:
        if worker is None:
            self._rank = self._fixed_rank or current_rank()
        shard = Shard(*self._rank, *(worker or (0, 1)))
        return Assignment(
            self._order.samples, start.sample_in_epoch, shard, self.batch_size, self._repeat_tail
        )

    def _blocks(self, start: Cursor, assignment: Assignment) -> Iterator[Block]:
        """What to read, cut so that several blocks fit the bound."""
        block_bytes_max = self._read_ahead_bytes // 4
        for first in range(0, assignment.count, _ORDER_AT_ONCE):
            count = min(_ORDER_AT_ONCE, assignment.count - first)
            indices = self._samples_at(start.epoch, assignment.positions(first, count))
            yield from _cut(indices, self.data.sizes_bytes(indices), block_bytes_max)

    def _samples_at(self, epoch: int, positions: Indices) -> Indices:
        if self._order.seed is None:
            return positions
        return Permutation(self._order.samples, self._order.seed, epoch).take(positions)

    def _load(self, block: Block) -> list[T]:
        return self.data.__getitems__(block.indices.tolist())


def _cut(indices: Indices, sizes: Indices, bytes_max: int) -> Iterator[Block]:
    """Consecutive blocks of at most `bytes_max`, or of one sample."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(indices):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = min(max(end, begin + 1), begin + _BLOCK_SAMPLES_MAX)
        yield Block(indices[begin:end], int(ends[end - 1]) - before)
        begin = end
