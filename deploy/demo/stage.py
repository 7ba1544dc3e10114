"""What the stages share: how big the demo is, and how a stage says that a claim does not hold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Advance = Callable[[int], None]
"""Tells the progress bar that so many more units are done."""


class StageFailed(Exception):
    """A stage ran, but what it claims is not true; the text says what was found instead."""


def require(claim: bool, otherwise: str) -> None:
    """Raises:
    StageFailed: with `otherwise`, when the claim does not hold.
    """
    if not claim:
        raise StageFailed(otherwise)


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of one run.

    Attributes:
        files_max: source files to ingest, taken evenly from all there are; None for all.
        partitions: of the data job.
        steps: of training.
        batch_size: windows per step.
        validation_windows: windows of unseen files to measure the loss on.
        traffic_before_s, traffic_after_s: how long reads and writes run around the kill.
    """

    files_max: int | None
    partitions: int
    steps: int
    batch_size: int
    validation_windows: int
    traffic_before_s: float
    traffic_after_s: float


QUICK: Final = Scale(
    files_max=400,
    partitions=2,
    steps=80,
    batch_size=16,
    validation_windows=96,
    traffic_before_s=0.5,
    traffic_after_s=2.0,
)
FULL: Final = Scale(
    files_max=None,
    partitions=4,
    steps=400,
    batch_size=16,
    validation_windows=256,
    traffic_before_s=2.0,
    traffic_after_s=5.0,
)
