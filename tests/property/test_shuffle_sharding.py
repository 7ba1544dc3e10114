"""Ranks and workers together read the epoch's sequence, through any number of resizes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_io.core.sharding import Assignment, Shard


def read(
    samples: int, start: int, shard: Shard, batch_size: int, *, repeat_tail: bool = False
) -> list[int]:
    assignment = Assignment(samples, start, shard, batch_size, repeat_tail)
    return assignment.positions(0, assignment.count).tolist()


def merged_workers(samples: int, rank: int, world: int, workers: int, batch: int) -> list[int]:
    """What a DataLoader delivers: a batch of each worker in turn, ended workers left out."""
    shares = [
        read(samples, 0, Shard(rank, world, worker, workers), batch) for worker in range(workers)
    ]
    merged: list[int] = []
    for turn in range(samples // batch + 1):
        for share in shares:
            merged += share[turn * batch : (turn + 1) * batch]
    return merged


@given(st.integers(0, 500), st.integers(1, 9), st.integers(1, 8), st.data())
@settings(max_examples=200)
def test_resizing_keeps_the_sequence(
    samples: int, batch: int, world: int, data: st.DataObject
) -> None:
    """Steps of any world size, one after the other, consume exactly 0, 1, 2, ..."""
    start, consumed = 0, []
    for _ in range(4):
        ranks = [Assignment(samples, start, Shard(r, world), batch) for r in range(world)]
        assert len({rank.rank_count for rank in ranks}) == 1, "no rank is longer than another"
        count = data.draw(st.integers(0, ranks[0].rank_count))
        steps = [rank.positions(0, count) for rank in ranks]
        consumed += [int(p) for step in zip(*steps, strict=True) for p in step]
        start = ranks[0].cursor_after(count)
        assert consumed == list(range(start))
        world = data.draw(st.integers(1, 8))


@given(st.integers(0, 400), st.integers(1, 5), st.integers(1, 6), st.integers(1, 16), st.data())
@settings(max_examples=200)
def test_workers_deliver_the_sequence_of_their_rank(
    samples: int, world: int, workers: int, batch: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, world - 1))
    assert merged_workers(samples, rank, world, workers, batch) == read(
        samples, 0, Shard(rank, world), batch
    )


@given(st.integers(1, 300), st.integers(1, 9), st.booleans(), st.data())
@settings(max_examples=200)
def test_an_epoch_leaves_out_less_than_one_round_or_repeats_less(
    samples: int, world: int, repeat_tail: bool, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, samples))
    shares = [
        read(samples, start, Shard(r, world), 4, repeat_tail=repeat_tail) for r in range(world)
    ]
    assert len({len(share) for share in shares}) == 1
    seen = np.concatenate([np.array(share, np.int64) for share in shares])
    due = set(range(start, samples))
    if repeat_tail:
        assert due <= set(seen.tolist())
        assert len(seen) < len(due) + world
    else:
        assert len(set(seen.tolist())) == len(seen)
        assert len(due) - len(seen) < world
