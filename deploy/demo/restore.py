"""Stages "checkpoint" and "restore": saves the training state to the cluster, and gets it back.

Verified by comparing every tensor and number bit by bit with the state in memory, and by taking the
next training step twice, in the trainer that went on and in one that was restored: same batch, same
loss.
"""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from deploy.demo.stage import require
from deploy.demo.train import Trainer
from trainer_io import checkpoint
from trainer_io.checkpoint.storage import Storage


@dataclass(frozen=True, slots=True)
class Saved:
    path: str
    bytes: int
    seconds: float
    state: Any
    """A copy of what was saved, to compare with."""


@dataclass(frozen=True, slots=True)
class Restored:
    tensors: int
    seconds: float
    next_loss: float


def save(storage: Storage, path: str, trainer: Trainer) -> Saved:
    state = copy.deepcopy(trainer.state())
    began = time.monotonic()
    size = checkpoint.save(state, path, storage=storage)
    return Saved(path, size, time.monotonic() - began, state)


def restore(storage: Storage, saved: Saved, original: Trainer, fresh: Trainer) -> Restored:
    """Restores `fresh` and takes one step in it and in `original`, which went on in memory."""
    began = time.monotonic()
    state = checkpoint.load(saved.path, storage=storage)
    seconds = time.monotonic() - began
    tensors = require_equal(saved.state, state, "state")
    fresh.restore(state)
    expected_batch, batch = next(original.batches()), next(fresh.batches())
    require(torch.equal(expected_batch, batch), "the restored stream gives another batch")
    expected, loss = original.step(expected_batch), fresh.step(batch)
    require(expected == loss, f"the restored trainer's next loss is {loss!r}, not {expected!r}")
    return Restored(tensors, seconds, loss)


def require_equal(expected: Any, found: Any, name: str) -> int:
    """The number of tensors in both.

    Raises:
        StageFailed: something differs; names what.
    """
    if isinstance(expected, torch.Tensor):
        same = isinstance(found, torch.Tensor) and _bits(expected) == _bits(found)
        require(same, f"{name} is not bit-equal after the restore")
        return 1
    if isinstance(expected, dict):
        require(isinstance(found, dict) and list(found) == list(expected), f"{name} has other keys")
    elif isinstance(expected, list | tuple):
        require(type(found) is type(expected) and len(found) == len(expected), f"{name} differs")
    else:
        require(found == expected, f"{name} is {found!r} after the restore, not {expected!r}")
    return sum(require_equal(e, f, f"{name}.{k}") for k, e, f in _pairs(expected, found))


def _pairs(expected: Any, found: Any) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(expected, dict):
        yield from ((key, expected[key], found[key]) for key in expected)
    elif isinstance(expected, list | tuple):
        yield from ((i, e, f) for i, (e, f) in enumerate(zip(expected, found, strict=True)))


def _bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    data = tensor.detach().cpu().contiguous()
    return data.dtype, data.shape, data.reshape(-1).view(torch.uint8).numpy().tobytes()
