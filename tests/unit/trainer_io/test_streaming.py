"""The stream: order, shares, resume, read-ahead, epochs; the same through DataLoader workers."""

import copy
import json
import threading
import time
from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt
import pytest
import torch

from trainer_io import StreamingDataset, StreamingLoader
from trainer_io.core.permutation import Permutation
from trainer_io.dataset.samples import Indices


class Numbers:
    """A data set whose sample i is i; it notes what was read and can be slow or broken."""

    fingerprint = "numbers"

    def __init__(self, count: int, *, size_bytes: int = 8, broken: int | None = None) -> None:
        self.count = count
        self.size_bytes = size_bytes
        self.broken = broken
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        if self.broken in indices:
            raise OSError("the disk is on fire")
        self.read += indices
        return list(indices)

    def sizes_bytes(self, indices: Indices) -> npt.NDArray[np.int64]:
        return np.full(len(indices), self.size_bytes, np.int64)


def expected(count: int, epoch: int = 0, seed: int = 3) -> list[int]:
    return Permutation(count, seed, epoch).take(np.arange(count)).tolist()


def test_an_epoch_is_the_specified_order_and_the_next_one_follows() -> None:
    stream = StreamingDataset(Numbers(1000), seed=3)
    assert len(stream) == 1000
    assert list(stream) == expected(1000)
    assert stream.epoch == 1
    assert list(stream) == expected(1000, epoch=1)
    stream.set_epoch(0)
    assert list(stream) == expected(1000)


def test_without_shuffle_the_stored_order() -> None:
    assert list(StreamingDataset(Numbers(100), shuffle=False)) == list(range(100))


def test_breaking_off_goes_on_where_it_stopped() -> None:
    stream = StreamingDataset(Numbers(100), seed=3)
    assert [*islice(stream, 10), *stream] == expected(100)


def test_resume_is_exact_and_changes_of_world_size_keep_the_sequence() -> None:
    def ranks(world: int) -> list[StreamingDataset[int]]:
        return [
            StreamingDataset(Numbers(1000), seed=3, rank=r, world_size=world) for r in range(world)
        ]

    state, seen = None, []
    for world, steps in ((2, 100), (3, 57), (1, 11), (5, 60)):
        streams = ranks(world)
        if state is not None:
            for stream in streams:
                stream.load_state_dict(state)
        shares = [list(islice(stream, steps)) for stream in streams]
        seen += [sample for step in zip(*shares, strict=True) for sample in step]
        states = [json.loads(json.dumps(stream.state_dict())) for stream in streams]
        assert all(s == states[0] for s in states), "the state is the same on all ranks"
        state = states[0]
    assert seen == expected(1000)[: len(seen)]
    assert len(seen) == 200 + 171 + 11 + 300


def test_set_epoch_after_a_resume_keeps_the_position() -> None:
    first = StreamingDataset(Numbers(50), seed=3)
    list(islice(first, 20))
    second = StreamingDataset(Numbers(50), seed=3)
    second.load_state_dict(first.state_dict())
    second.set_epoch(0)
    assert list(second) == expected(50)[20:]


def test_ranks_have_equal_lengths_with_and_without_repeats() -> None:
    for repeat, length in ((False, 3), (True, 4)):
        streams = [
            StreamingDataset(Numbers(11), seed=3, rank=r, world_size=3, repeat_tail=repeat)
            for r in range(3)
        ]
        assert [len(list(stream)) for stream in streams] == [length] * 3
        assert len(streams[0]) == length


def test_read_ahead_is_bounded_and_in_whole_blocks() -> None:
    data = Numbers(10_000, size_bytes=1000)
    iterator = iter(StreamingDataset(data, read_ahead_bytes=40_000))
    next(iterator)
    deadline = time.monotonic() + 5
    while len(data.read) < 40 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(data.read) == 40, "exactly the bound is read ahead, no more"
    iterator.close()  # type: ignore[attr-defined]


def test_breaking_off_leaves_no_thread() -> None:
    for _ in StreamingDataset(Numbers(100), read_ahead_bytes=160):
        break
    assert not [t for t in threading.enumerate() if t.name == "trainer-io-read"]


def test_a_sample_larger_than_the_bound_still_comes() -> None:
    stream = StreamingDataset(Numbers(5, size_bytes=10**9), read_ahead_bytes=1000, shuffle=False)
    assert list(stream) == [0, 1, 2, 3, 4]


def test_an_error_comes_in_its_place_and_no_thread_stays() -> None:
    stream = StreamingDataset(Numbers(100, broken=60), shuffle=False, read_ahead_bytes=160)
    with pytest.raises(OSError, match="on fire"):
        list(stream)
    delivered = stream.state_dict()["sample_in_epoch"]
    assert delivered == 60, "all blocks before the broken one were delivered"
    assert not [t for t in threading.enumerate() if t.name == "trainer-io-read"]


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="rank 2"):
        StreamingDataset(Numbers(5), rank=2, world_size=2)
    with pytest.raises(ValueError, match="both"):
        StreamingDataset(Numbers(5), rank=2)
    with pytest.raises(ValueError, match="at least 1"):
        StreamingDataset(Numbers(5), batch_size=0)
    with pytest.raises(ValueError, match="from 0"):
        StreamingDataset(Numbers(5)).set_epoch(-1)
    with pytest.raises(TypeError, match="batch_size"):
        StreamingLoader(StreamingDataset(Numbers(5)), batch_size=3)


def flat(batches: Sequence[torch.Tensor]) -> list[int]:
    return [int(sample) for batch in batches for sample in batch]


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (0, {}),
        (2, {"multiprocessing_context": "fork"}),
        (2, {"multiprocessing_context": "fork", "persistent_workers": True}),
        (2, {"multiprocessing_context": "spawn"}),
    ],
)
def test_a_loader_delivers_the_order_and_resumes_exactly_with_any_workers(
    workers: int, options: dict[str, object]
) -> None:
    def loader(count: int, **options: object) -> StreamingLoader[torch.Tensor]:
        return StreamingLoader(
            StreamingDataset(Numbers(205), batch_size=10, seed=3), num_workers=count, **options
        )

    first = loader(workers, **options)
    batches = list(islice(first, 7))
    assert flat(batches) == expected(205)[:70]
    state = first.state_dict()
    assert state["sample_in_epoch"] == 70, "what workers read ahead does not count"
    second = loader(0)
    second.load_state_dict(state)
    assert flat(list(second)) == expected(205)[70:]
    assert flat(list(first)) == expected(205)[70:], "it goes on where it was broken off"
    assert flat(list(first)) == expected(205, epoch=1), "the next epoch, persistent workers too"
    first.set_epoch(7)
    assert flat(list(first)) == expected(205, epoch=7)


def test_ranks_and_workers_together_see_every_sample_once() -> None:
    seen = []
    for rank in range(2):
        stream = StreamingDataset(Numbers(200), batch_size=8, seed=3, rank=rank, world_size=2)
        seen += flat(list(StreamingLoader(stream, num_workers=2, multiprocessing_context="fork")))
    assert sorted(seen) == list(range(200))


def test_a_stock_dataloader_works_too() -> None:
    stream = StreamingDataset(Numbers(100), batch_size=10, seed=3)
    stock = torch.utils.data.DataLoader(
        stream, batch_size=10, num_workers=2, multiprocessing_context="fork"
    )
    assert flat(list(stock)) == expected(100)
    stream.set_epoch(4)
    assert flat(list(stock)) == expected(100, epoch=4)


def test_map_style_data_gets_one_read_per_batch_from_a_stock_dataloader() -> None:
    data = Numbers(100)
    sampler = torch.utils.data.DataLoader(data, batch_size=25, shuffle=True)  # type: ignore[arg-type]
    assert sorted(flat(list(sampler))) == list(range(100))


def test_a_stream_can_be_copied() -> None:
    stream = StreamingDataset(Numbers(100), seed=3)
    list(islice(stream, 5))
    assert list(copy.deepcopy(stream)) == expected(100)[5:]
    assert list(stream) == expected(100)[5:]
