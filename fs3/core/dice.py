"""Randomness as an argument, so that a decision can be replayed from a seed.

`random.SystemRandom()` is a Dice in production, `random.Random(seed)` in tests and simulation.
"""

from typing import Protocol


class Dice(Protocol):
    def getrandbits(self, count: int, /) -> int:
        """A number of `count` random bits."""
