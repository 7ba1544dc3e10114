"""The shuffle: which sample stands at which position of an epoch, without storing the order.

Order "trainer-order 1" is a keyed bijection of [0, n) computed per position, so that 10**11 samples
need no memory, any rank can start anywhere, and the order is the same for every world size. It is
specified here in integer arithmetic and pinned by golden vectors; it never changes for a given
version number, because resumed jobs depend on it.

The idea is an alternating Feistel network with cycle walking. Let k = max(8, bits of n - 1), and
split a k-bit word into `high` (k // 2 bits) and `low` (the rest). Round r = 0..5 replaces

    even r:  low  ^= mix(high ^ key[r])      (kept to the bits of low)
    odd r:   high ^= mix(low  ^ key[r])      (kept to the bits of high)

where mix is the 64-bit finaliser of SplitMix64. Each round can be undone, so the network permutes
[0, 2**k). A result outside [0, n) is put through the network again until it falls inside, which
keeps it a bijection of [0, n); 2**k < 2n (n > 128), so fewer than two passes are needed on average.
key[r] = mix(base + (r + 1) * GAMMA) with base = mix(mix(seed + GAMMA) + epoch), all modulo 2**64.

Rejected: a stored permutation (800 GB for 10**11 samples), shuffling shards and then a buffer (the
neighbours of a sample stay its neighbours), and library shuffles (they change between versions).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

ORDER_VERSION: Final = 1
ROUNDS: Final = 6
SAMPLES_MAX: Final = 1 << 62

_GAMMA: Final = 0x9E3779B97F4A7C15
_MULTIPLIER_1: Final = 0xBF58476D1CE4E5B9
_MULTIPLIER_2: Final = 0x94D049BB133111EB
_WORD: Final = (1 << 64) - 1

_BLOCK: Final = 16_384
"""Positions computed at once: three such arrays of words stay in a core's own cache."""


@dataclass(frozen=True, slots=True)
class Permutation:
    """The order of one epoch: `permutation.take(positions)` are the samples at those positions.

    Attributes:
        samples: n, the number of samples in the data set.
        seed: any integer; taken modulo 2**64.
        epoch: number of the pass over the data, from 0.
    """

    samples: int
    seed: int
    epoch: int

    def __post_init__(self) -> None:
        assert 0 <= self.samples <= SAMPLES_MAX
        assert self.epoch >= 0

    def take(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Sample indices at `positions` (each in [0, samples)), in the same order."""
        assert positions.dtype == np.int64
        assert positions.size == 0 or (positions.min() >= 0 and positions.max() < self.samples)
        network = _Network.of(self.samples, self.seed, self.epoch)
        result = np.empty(positions.shape, dtype=np.int64)
        for start in range(0, positions.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            result[block] = network.walk(positions[block].astype(np.uint64))
        return result


@dataclass(frozen=True, slots=True)
class _Network:
    """The keyed bijection of [0, 2**k), and the walk that keeps it inside [0, n)."""

    samples: np.uint64
    low_bits: np.uint64
    low_mask: np.uint64
    high_mask: np.uint64
    keys: tuple[np.uint64, ...]

    @classmethod
    def of(cls, samples: int, seed: int, epoch: int) -> "_Network":
        bits = max(8, (samples - 1).bit_length())
        low = bits - bits // 2
        base = _mix_word(_mix_word(seed + _GAMMA) + epoch)
        return cls(
            samples=np.uint64(samples),
            low_bits=np.uint64(low),
            low_mask=np.uint64((1 << low) - 1),
            high_mask=np.uint64((1 << bits // 2) - 1),
            keys=tuple(np.uint64(_mix_word(base + (r + 1) * _GAMMA)) for r in range(ROUNDS)),
        )

    def walk(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        result = self._permute(words)
        (outside,) = np.nonzero(result >= self.samples)
        while outside.size:
            again = self._permute(result[outside])
            result[outside] = again
            outside = outside[again >= self.samples]
        return result

    def _permute(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        high = words >> self.low_bits
        low = words & self.low_mask
        for even, odd in zip(self.keys[::2], self.keys[1::2], strict=True):
            low ^= _mix(high ^ even) & self.low_mask
            high ^= _mix(low ^ odd) & self.high_mask
        return (high << self.low_bits) | low


def _mix(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser, in place."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(_MULTIPLIER_1)
    words ^= words >> np.uint64(27)
    words *= np.uint64(_MULTIPLIER_2)
    words ^= words >> np.uint64(31)
    return words


def _mix_word(word: int) -> int:
    word &= _WORD
    word = (word ^ (word >> 30)) * _MULTIPLIER_1 & _WORD
    word = (word ^ (word >> 27)) * _MULTIPLIER_2 & _WORD
    return word ^ (word >> 31)
