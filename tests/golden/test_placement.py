"""Placement is a format: these numbers never change under hash_version 1."""

from collections import Counter

import pytest

from fs3.ids import ChainId
from fs3.model.placement import HASH_VERSION, stripe_chains

VECTORS = [
    ((1, 1, 0), (1,)),
    ((8, 4, 0), (8, 5, 3, 1)),
    ((8, 8, 42), (6, 3, 4, 5, 2, 8, 7, 1)),
    ((1000, 6, 2**64 - 1), (894, 913, 222, 428, 707, 826)),
    ((3, 10, 7), (2, 1, 3)),
]


@pytest.mark.parametrize(("arguments", "chains"), VECTORS)
def test_golden(arguments: tuple[int, int, int], chains: tuple[int, ...]) -> None:
    count, stripe, seed = arguments
    table = [ChainId(i) for i in range(1, count + 1)]
    assert HASH_VERSION == 1
    assert stripe_chains(table, stripe, seed) == chains


def test_stripes_are_distinct_chains_spread_evenly() -> None:
    table = [ChainId(i) for i in range(50)]
    heads = Counter[int]()
    for seed in range(5_000):
        stripe = stripe_chains(table, 5, seed)
        assert len(set(stripe)) == 5
        heads[stripe[0]] += 1
    assert max(heads.values()) < 1.5 * 5_000 / 50


@pytest.mark.parametrize(("count", "stripe"), [(0, 1), (4, 0)])
def test_impossible_stripe(count: int, stripe: int) -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        stripe_chains([ChainId(i) for i in range(count)], stripe, 1)
