"""Which positions of the epoch one consumer reads, for any number of ranks and workers.

The epoch is one global sequence of positions. From the position `start`, where this run began or
resumed, rank r of w takes start + r, start + r + w, ...: at every moment the ranks together have
consumed exactly a prefix of the sequence, so one number, the cursor, resumes the epoch under any
other world size. Inside a rank, DataLoader workers take whole batches in turn, because that is the
order in which a DataLoader asks its workers.

No rank is ever longer than another, so that no collective hangs at the end of an epoch: the last
`samples % w` positions are dropped, or with `repeat_tail` the sequence wraps around.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Shard:
    """One consumer: data-parallel rank `rank` of `world_size`, worker `worker` of `workers`."""

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not below the world size {self.world_size}")
        if not 0 <= self.worker < self.workers:
            raise ValueError(f"worker {self.worker} is not below the worker count {self.workers}")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What `shard` reads of an epoch of `samples` positions, beginning at position `start`.

    Attributes:
        batch_size: samples that a worker delivers before it is the next worker's turn.
        repeat_tail: give every rank one sample more, from the beginning, instead of dropping the
            last `remaining % world_size` positions.
    """

    samples: int
    start: int
    shard: Shard
    batch_size: int = 1
    repeat_tail: bool = False

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.samples
        assert self.batch_size >= 1

    @property
    def rank_count(self) -> int:
        """Samples that this rank, like every other, reads until the end of the epoch."""
        remaining = self.samples - self.start
        if self.repeat_tail:
            remaining += self.shard.world_size - 1
        return remaining // self.shard.world_size

    @property
    def count(self) -> int:
        """Samples that this worker reads: its share of `rank_count`."""
        batches, last = divmod(self.rank_count, self.batch_size)
        worker, workers = self.shard.worker, self.shard.workers
        mine = (batches - worker + workers - 1) // workers * self.batch_size
        return mine + (last if batches % workers == worker else 0)

    def positions(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Positions of this worker's samples number `first` to `first + count - 1`."""
        assert 0 <= first <= first + count <= self.count
        mine = np.arange(first, first + count, dtype=np.int64)
        batch, offset = np.divmod(mine, self.batch_size)
        of_rank = (batch * self.shard.workers + self.shard.worker) * self.batch_size + offset
        positions = self.start + of_rank * self.shard.world_size + self.shard.rank
        return positions % self.samples if self.repeat_tail else positions

    def cursor_after(self, consumed: int) -> int:
        """The global cursor once every rank has consumed `consumed` samples since `start`."""
        assert 0 <= consumed <= self.rank_count
        return min(self.start + consumed * self.shard.world_size, self.samples)
