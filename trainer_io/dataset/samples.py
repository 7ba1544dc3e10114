"""What a map-style data set is, so that streaming works over any of them."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Sample = TypeVar("Sample")

Indices = npt.NDArray[np.int64]


class Samples(Protocol[Sample]):
    """A map-style data set that delivers whole mini-batches. Picklable."""

    @property
    def fingerprint(self) -> str:
        """Changes when the files do."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """The samples at `indices`, in that order, read in one batch. PyTorch calls this too."""

    def sizes_bytes(self, indices: Indices) -> npt.NDArray[np.int64]:
        """Memory that each of these samples takes, about, for bounding what is read ahead."""


def checked_index(index: int, length: int) -> int:
    """A non-negative index; negative ones count from the end, as in a list.

    Raises:
        IndexError: outside of the data set.
    """
    if not -length <= index < length:
        raise IndexError(f"sample {index} of {length}")
    return index % length
