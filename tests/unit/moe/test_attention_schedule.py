"""The split-KV schedule covers every block once; split results combine to the whole."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.moe.agreement import assert_close
from trainer_io.moe.attention import combine_splits, schedule_splits
from trainer_io.moe.attention.schedule import Schedule
from trainer_io.moe.attention.tiles import Tile, attend


def blocks_by_split(schedule: Schedule, blocks: list[int]) -> dict[int, list[tuple[int, int]]]:
    """For each request the block ranges of its splits, in split order."""
    work: dict[int, list[tuple[int, int]]] = {i: [] for i in range(len(blocks))}
    for part in schedule.parts:
        for request in range(part.begin_request, part.end_request + 1):
            begin = part.begin_block if request == part.begin_request else 0
            end = part.end_block if request == part.end_request else blocks[request]
            if request == part.begin_request:
                assert part.begin_split == len(work[request])
            work[request].append((begin, end))
    return work


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12), st.integers(1, 20))
def test_every_block_once(lengths: list[int], part_count: int) -> None:
    schedule = schedule_splits(lengths, part_count)
    blocks = [max(-(-n // 64), 1) for n in lengths]
    work = blocks_by_split(schedule, blocks)
    payload = -(-sum(n + 5 for n in blocks) // part_count) + 5
    assert len(schedule.parts) == part_count
    for request, ranges in work.items():
        assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == blocks[request]
        assert len(ranges) == schedule.splits[request + 1] - schedule.splits[request]
    for part in schedule.parts:
        mine = range(part.begin_request, part.end_request + 1)
        taken = sum(blocks[r] for r in mine) + 5 * len(mine)
        taken -= part.begin_block + (blocks[part.end_request] - part.end_block) if mine else 0
        assert taken <= payload
        if mine:
            assert part.first_is_shared == (len(work[mine[0]]) > 1)
            assert part.last_is_shared == (len(work[mine[-1]]) > 1)


def test_published_shape() -> None:
    """10 and 2 blocks on two workers: payload 16; the first takes 15, which leaves no room."""
    schedule = schedule_splits([640, 128], 2)
    assert schedule.splits == (0, 1, 2)
    first, second = schedule.parts
    assert (first.begin_request, first.end_request, first.end_block) == (0, 0, 10)
    assert (second.begin_request, second.end_request, second.end_block) == (1, 1, 2)


def test_long_request_is_split() -> None:
    schedule = schedule_splits([6400], 4)
    assert schedule.splits == (0, 4)
    spans = [(part.begin_block, part.end_block) for part in schedule.parts]
    assert spans == [(0, 27), (27, 54), (54, 81), (81, 100)]
    assert all(part.first_is_shared for part in schedule.parts)


def test_combined_splits_equal_the_whole() -> None:
    dice = torch.Generator().manual_seed(3)
    query = torch.randn(5, 16, generator=dice)
    keys = torch.randn(90, 16, generator=dice)
    visible = torch.arange(90) < torch.tensor([[0], [10], [35], [64], [90]])
    whole = attend(query, [Tile(keys, visible)], 8)
    cuts = [(0, 30), (30, 60), (60, 90)]
    parts = [attend(query, [Tile(keys[a:b], visible[:, a:b])], 8) for a, b in cuts]
    out, lse = combine_splits(
        torch.stack([part.out for part in parts]), torch.stack([part.lse for part in parts])
    )
    assert_close(out, whole.out, 1e-6, 1e-5, 1e-10)
    assert_close(lse, whole.lse, 1e-6, 1e-6, 1e-10)
    assert (out[0] == 0).all()
    assert float(lse[0]) == -torch.inf
