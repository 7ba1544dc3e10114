"""Stage "train": streams token windows from the cluster into a small transformer.

Verified on files that training never sees: the loss must be below the entropy of single bytes
there, which is the best that any model without context can reach on exactly those bytes.
"""

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from deploy.demo.model import VOCABULARY, ByteTransformer, ModelShape, next_byte_loss
from deploy.demo.stage import Advance, Scale, require
from trainer_io import StreamingDataset, StreamingLoader, TokenDataset
from trainer_io.dataset.source import FileSource

SEED: Final = 7
LEARNING_RATE: Final = 6e-3
WARMUP_STEPS: Final = 10
GRADIENT_NORM_MAX: Final = 1.0
SHAPE: Final = ModelShape()


@dataclass(frozen=True, slots=True)
class Trained:
    """Losses are nats per byte; `waiting_s` is what the loop waited for data."""

    trainer: "Trainer"
    steps: int
    samples_per_s: float
    waiting_s: float
    loss_before: float
    loss_after: float
    byte_entropy: float
    device: str


def leave_cores_to_the_cluster() -> None:
    """Computes on half of the cores: threads that wait for each other at every layer come to a
    crawl where storage nodes and workers want the same cores."""
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))


class Trainer:
    """Model, optimizer and data stream: everything that a checkpoint must bring back."""

    def __init__(self, reader: FileSource, directory: str, batch_size: int) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(SEED)
        self.model = ByteTransformer(SHAPE).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), LEARNING_RATE, (0.9, 0.95))
        self.steps = 0
        windows = TokenDataset(directory, window=SHAPE.context + 1, source=reader)
        self.loader: StreamingLoader[torch.Tensor] = StreamingLoader(
            StreamingDataset(windows, batch_size=batch_size, seed=SEED), drop_last=True
        )

    def batches(self) -> Iterator[torch.Tensor]:
        """Batches from where the stream stands, epoch after epoch."""
        return itertools.chain.from_iterable(itertools.repeat(self.loader))

    def step(self, batch: torch.Tensor) -> float:
        """One optimizer step; the loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (self.steps + 1) / WARMUP_STEPS)
        loss = next_byte_loss(self.model, batch.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_NORM_MAX)
        self.optimizer.step()
        self.steps += 1
        return loss.item()

    def loss(self, windows: torch.Tensor) -> float:
        with torch.no_grad():
            return next_byte_loss(self.model, windows.to(self.device)).item()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "stream": self.loader.state_dict(),
            "steps": self.steps,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["stream"])
        self.steps = state["steps"]


def train(
    reader: FileSource, directories: Mapping[str, str], scale: Scale, advance: Advance
) -> Trained:
    """Trains `scale.steps` steps on the split "train"; advances once per step."""
    trainer = Trainer(reader, directories["train"], scale.batch_size)
    unseen = validation_windows(reader, directories["validation"], scale.validation_windows)
    entropy = byte_entropy(unseen)
    before = trainer.loss(unseen)
    batches = trainer.batches()
    waiting = 0.0
    began = time.monotonic()
    for _ in range(scale.steps):
        asked = time.monotonic()
        batch = next(batches)
        waiting += time.monotonic() - asked
        trainer.step(batch)
        advance(1)
    elapsed = time.monotonic() - began
    after = trainer.loss(unseen)
    require(
        after < min(before, entropy),
        f"the loss on unseen files went from {before:.3f} to {after:.3f} nats per byte; it must "
        f"fall below {entropy:.3f}, the entropy of their single bytes",
    )
    return Trained(
        trainer=trainer,
        steps=scale.steps,
        samples_per_s=scale.steps * scale.batch_size / elapsed,
        waiting_s=waiting,
        loss_before=before,
        loss_after=after,
        byte_entropy=entropy,
        device=str(trainer.device),
    )


def validation_windows(reader: FileSource, directory: str, count: int) -> torch.Tensor:
    """The first `count` windows in a fixed shuffled order, or all there are."""
    windows = TokenDataset(directory, window=SHAPE.context + 1, source=reader)
    require(len(windows) > 0, f"{directory} has less than one window of tokens")
    order = itertools.islice(StreamingDataset(windows, seed=SEED), count)
    return torch.from_numpy(np.stack(list(order)))


def byte_entropy(windows: torch.Tensor) -> float:
    """Entropy in nats of the single bytes that `next_byte_loss` has to predict in `windows`."""
    counts = np.bincount(windows[:, 1:].numpy().ravel(), minlength=VOCABULARY)
    parts = counts[counts > 0] / counts.sum()
    return float(-(parts * np.log(parts)).sum())
