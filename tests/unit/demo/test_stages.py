"""Stages on a cluster in memory: they do their work, and they notice when a claim is false."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from deploy.demo.failure import BLOCK_BYTES, BLOCKS_PER_FILE, Victim, survive
from deploy.demo.ingest import SourceFile, ingest
from deploy.demo.restore import require_equal, restore, save
from deploy.demo.stage import QUICK, StageFailed
from deploy.demo.train import Trainer, byte_entropy, train
from fs3.client.fake import FakeCluster
from fs3.client.filesystem import FileSystem
from trainer_io.checkpoint.storage import LocalStorage
from trainer_io.dataset.source import LocalSource

SMALL = dataclasses.replace(
    QUICK, steps=30, batch_size=4, validation_windows=8, traffic_before_s=0.1, traffic_after_s=0.1
)


def ignore(_: int) -> None:
    """No progress bar."""


def tokens(directory: Path, text: bytes) -> str:
    directory.mkdir()
    column = pa.array([[*text, 0]], pa.list_(pa.uint8()))
    pq.write_table(pa.table({"tokens": column}), directory / "a.parquet")
    return str(directory)


@pytest.fixture
def text(tmp_path: Path) -> dict[str, str]:
    """Text with structure between bytes, and other text of the same kind."""
    words = [b"def ", b"return ", b"self.", b"import ", b"(value)", b":\n    ", b" = 0\n"]
    dice = np.random.default_rng(0)
    train, validation = (
        b"".join(words[i] for i in dice.integers(0, len(words), count)) for count in (9000, 900)
    )
    return {
        "train": tokens(tmp_path / "train", train),
        "validation": tokens(tmp_path / "validation", validation),
    }


def test_ingest_copies_and_reads_back(tmp_path: Path) -> None:
    sources = []
    for number in range(20):
        path = tmp_path / f"{number}.py"
        path.write_bytes(bytes([number]) * number * 1000)
        sources.append(SourceFile(path, f"package/{number % 3}/{number}.py"))
    steps: list[int] = []
    with FakeCluster().connect() as filesystem:
        result = ingest(filesystem, sources, "/demo", steps.append)
        assert (result.files, result.bytes) == (20, 190_000)
        assert sum(steps) == 40
        assert filesystem.read_bytes("/demo/package/1/7.py") == sources[7].path.read_bytes()


def test_ingest_notices_another_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"right")

    class Forgetful(FileSystem):
        def write_bytes(self, path: Any, data: Any, **options: Any) -> int:
            return super().write_bytes(path, data[::-1], **options)

    with FakeCluster().connect() as filesystem:
        filesystem.__class__ = Forgetful
        with pytest.raises(StageFailed, match=r"a\.py reads back with another checksum"):
            ingest(filesystem, [SourceFile(path, "a.py")], "/demo", ignore)


def test_training_learns_and_a_restored_trainer_goes_on_alike(
    tmp_path: Path, text: dict[str, str]
) -> None:
    result = train(LocalSource(), text, SMALL, ignore)
    assert result.loss_after < result.byte_entropy < result.loss_before
    saved = save(LocalStorage(), str(tmp_path / "checkpoint"), result.trainer)
    fresh = Trainer(LocalSource(), text["train"], SMALL.batch_size)
    assert restore(LocalStorage(), saved, result.trainer, fresh).tensors > 20


def test_training_without_structure_to_learn_fails(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(1, 256, 40_000, np.uint8).tobytes()
    splits = ("train", "validation")
    directories = {name: tokens(tmp_path / name, noise[i::2]) for i, name in enumerate(splits)}
    with pytest.raises(StageFailed, match="must fall below"):
        train(LocalSource(), directories, dataclasses.replace(SMALL, steps=3), ignore)


def test_byte_entropy_is_that_of_the_predicted_bytes() -> None:
    windows = torch.tensor([[9, 1, 2, 1, 2], [9, 3, 4, 3, 4]])
    assert math.isclose(byte_entropy(windows), math.log(4))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"weight": torch.tensor([1.0, 2.0])}, r"state\.weight is not bit-equal"),
        ({"weight": torch.tensor([1.0, -0.0])}, r"state\.weight is not bit-equal"),
        ({"weight": torch.tensor([1.0, 0.0], dtype=torch.float64)}, "bit-equal"),
        ({"steps": 4}, r"state\.steps is 4 after the restore, not 3"),
        ({"more": 1}, "other keys"),
        ({"groups": [{"lr": 0.2}]}, r"state\.groups\.0\.lr is 0\.2"),
        ({"groups": []}, r"state\.groups differs"),
    ],
)
def test_a_state_that_is_not_bit_equal_is_noticed(change: dict[str, Any], named: str) -> None:
    state = {"weight": torch.tensor([1.0, 0.0]), "steps": 3, "groups": [{"lr": 0.1}]}
    assert require_equal(state, dict(state), "state") == 1
    with pytest.raises(StageFailed, match=named):
        require_equal(state, state | change, "state")


def test_a_kill_that_met_no_operation_is_noticed() -> None:
    with FakeCluster().connect() as filesystem:
        victim = Victim("node-1", lambda: None)
        with pytest.raises(StageFailed, match="no operation was in flight on node-1"):
            survive(filesystem, "/load", 4, victim, SMALL, ignore)


def test_lost_bytes_are_noticed() -> None:
    with FakeCluster().connect() as filesystem:

        def lose() -> None:
            for name in filesystem.listdir("/load"):
                with filesystem.open(f"/load/{name}", "r+b") as file:
                    file.write_at(0, bytes(BLOCKS_PER_FILE * BLOCK_BYTES))

        with pytest.raises(StageFailed, match="is not as written"):
            survive(filesystem, "/load", 4, Victim("node-1", lose), SMALL, ignore)
