"""The shuffle is a bijection, uniform, and exactly the specified one."""

import json
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_io.core.permutation import Permutation

GOLDEN = Path(__file__).parents[1] / "golden" / "trainer_order_1.json"
WORD = (1 << 64) - 1

sizes = st.one_of(st.integers(1, 300), st.integers(301, 70_000))
seeds = st.integers(-(1 << 70), 1 << 70)
epochs = st.integers(0, 1 << 40)


def plain(samples: int, seed: int, epoch: int, position: int) -> int:
    """The specification, one position at a time, in unbounded integers."""

    def mix(word: int) -> int:
        word &= WORD
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & WORD
        return word ^ (word >> 31)

    gamma = 0x9E3779B97F4A7C15
    base = mix(mix(seed + gamma) + epoch)
    keys = [mix(base + (r + 1) * gamma) for r in range(6)]
    bits = max(8, (samples - 1).bit_length())
    low_bits = bits - bits // 2
    word = position
    while True:
        high, low = word >> low_bits, word & ((1 << low_bits) - 1)
        for r, key in enumerate(keys):
            if r % 2 == 0:
                low ^= mix(high ^ key) & ((1 << low_bits) - 1)
            else:
                high ^= mix(low ^ key) & ((1 << bits // 2) - 1)
        word = high << low_bits | low
        if word < samples:
            return word


@given(samples=sizes, seed=seeds, epoch=epochs)
@settings(max_examples=60, deadline=None)
def test_every_sample_comes_exactly_once(samples: int, seed: int, epoch: int) -> None:
    order = Permutation(samples, seed, epoch).take(np.arange(samples))
    assert np.array_equal(np.sort(order), np.arange(samples))


@given(
    samples=st.integers(1, 1 << 62),
    seed=seeds,
    epoch=epochs,
    part=st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=100, deadline=None)
def test_the_fast_version_is_the_specified_one(
    samples: int, seed: int, epoch: int, part: float
) -> None:
    position = min(int(samples * part), samples - 1)
    (taken,) = Permutation(samples, seed, epoch).take(np.array([position], np.int64))
    assert taken == plain(samples, seed, epoch, position)


@given(samples=st.integers(2, 40_000), seed=seeds, data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_position_means_the_same_alone_and_in_a_batch(
    samples: int, seed: int, data: st.DataObject
) -> None:
    permutation = Permutation(samples, seed, 0)
    positions = np.array(
        data.draw(st.lists(st.integers(0, samples - 1), min_size=1, max_size=50)), np.int64
    )
    assert np.array_equal(
        permutation.take(positions), permutation.take(np.arange(samples))[positions]
    )


def test_golden_vectors() -> None:
    """These never change: resumed jobs depend on them."""
    for case in json.loads(GOLDEN.read_text()):
        order = Permutation(case["samples"], case["seed"], case["epoch"])
        taken = order.take(np.array(case["positions"], np.int64))
        assert taken.tolist() == case["indices"], case


def test_every_sample_is_equally_likely_at_every_position() -> None:
    """Chi-square of (position, sample) over many seeds, within 5 standard deviations."""
    for samples, seeds_tried in ((5, 200), (16, 500), (100, 500)):
        counts = np.zeros((samples, samples))
        for seed in range(seeds_tried):
            counts[np.arange(samples), Permutation(samples, seed, 0).take(np.arange(samples))] += 1
        expected = seeds_tried / samples
        freedom = (samples - 1) ** 2
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom), samples


def test_neighbours_and_epochs_are_unrelated() -> None:
    samples = 200_000
    orders = [Permutation(samples, 3, epoch).take(np.arange(samples)) for epoch in range(2)]
    distance = np.abs(np.diff(orders[0])).mean()
    assert abs(distance / (samples / 3) - 1) < 0.01, "a uniform order has a mean distance of n / 3"
    bound = 5 / np.sqrt(samples)
    assert abs(np.corrcoef(orders[0][:-1], orders[0][1:])[0, 1]) < bound
    assert abs(np.corrcoef(orders[0], orders[1])[0, 1]) < bound
    assert abs(np.corrcoef(np.arange(samples), orders[0])[0, 1]) < bound
