"""Where a training run stands in its data: a few numbers from which any world size can go on.

The state says nothing about ranks, workers, batches or what was read ahead, so it stays under
1 KB for any data set and is equal on every rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer_io.core.permutation import ORDER_VERSION

STATE_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """`sample_in_epoch` positions of epoch `epoch` have been consumed by all ranks together."""

    epoch: int = 0
    sample_in_epoch: int = 0

    def next_epoch(self) -> "Cursor":
        return Cursor(self.epoch + 1, 0)


@dataclass(frozen=True, slots=True)
class Order:
    """What determines the global sequence of samples: the data and the shuffle.

    Attributes:
        fingerprint: of the names and sizes of the files, to notice that the data has changed.
        seed: None when samples come in stored order.
    """

    samples: int
    fingerprint: str
    seed: int | None


def to_state(order: Order, cursor: Cursor) -> dict[str, int | str | None]:
    """A JSON-compatible dictionary that `from_state` understands."""
    return {
        "format": STATE_FORMAT,
        "order_version": ORDER_VERSION,
        "samples": order.samples,
        "fingerprint": order.fingerprint,
        "seed": order.seed,
        "epoch": cursor.epoch,
        "sample_in_epoch": cursor.sample_in_epoch,
    }


def from_state(order: Order, state: Mapping[str, object]) -> Cursor:
    """The cursor in `state`, which must have been saved for the same order.

    Raises:
        ValueError: the state is not one of ours, or was saved for other data or another seed.
            Continuing would silently repeat and skip samples.
    """
    expected = to_state(order, Cursor())
    if unknown := expected.keys() ^ state.keys():
        raise ValueError(f"not a data set state: fields {sorted(unknown)} are missing or unknown")
    for field in ("format", "order_version", "samples", "fingerprint", "seed"):
        if state[field] != expected[field]:
            raise ValueError(
                f"the state was saved with {field} {state[field]!r}, this data set has "
                f"{expected[field]!r}: resume with the same files, seed and version, or start anew"
            )
    epoch, sample = state["epoch"], state["sample_in_epoch"]
    if not (isinstance(epoch, int) and isinstance(sample, int)):
        raise ValueError("not a data set state: epoch and sample_in_epoch must be integers")
    if epoch < 0 or not 0 <= sample <= order.samples:
        raise ValueError(f"position {sample} of epoch {epoch} is outside {order.samples} samples")
    return Cursor(epoch, sample)
