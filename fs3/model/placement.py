"""Chunk -> chain: a specified integer permutation, never a library shuffle.

A file's stripe is the first `stripe` elements of a Fisher-Yates permutation of its chain table,
driven by SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) from the seed in its inode; a bounded draw is
Lemire's multiply-shift (ACM TOMACS 2019) without rejection, whose bias below 2^-32 does not matter
here. Chunk `i` lies on stripe element `i % stripe`. The numbers are pinned by golden vectors and
drawn in `docs/design/formats.md`; `hash_version` in the layout names this algorithm as 1.
"""

from collections.abc import Sequence
from typing import Final

from fs3.ids import ChainId

HASH_VERSION: Final = 1
_MASK: Final = (1 << 64) - 1


def stripe_chains(chains: Sequence[ChainId], stripe: int, seed: int) -> tuple[ChainId, ...]:
    """The chains of one file, in stripe order.

    Args:
        chains: all chains of the table version named in the layout.
        stripe: number wanted, at least 1; a stripe wider than the table is cut to it.
        seed: u64 from the layout.

    Raises:
        ValueError: the table is empty or the stripe is below 1.
    """
    if not chains or stripe < 1:
        raise ValueError(f"a stripe of {stripe} cannot be drawn from {len(chains)} chains")
    moved: dict[int, int] = {}
    state = seed & _MASK
    count = len(chains)
    chosen = []
    for position in range(min(stripe, count)):
        state, random = _splitmix64(state)
        other = position + (random * (count - position) >> 64)
        chosen.append(chains[moved.get(other, other)])
        moved[other] = moved.get(position, position)
    return tuple(chosen)


def _splitmix64(state: int) -> tuple[int, int]:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return state, mixed ^ mixed >> 31
