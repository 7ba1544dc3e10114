"""Data sets, loaders with worker processes and checkpoints on a real cluster."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from deploy.local import LocalCluster
from fs3.client.filesystem import FileSystem
from trainer_io import (
    FileDataset,
    ParquetDataset,
    StreamingDataset,
    StreamingLoader,
    TokenDataset,
    checkpoint,
)
from trainer_io.checkpoint.storage import Fs3Storage

pytestmark = pytest.mark.cluster

WINDOW = 33


@pytest.fixture
def data(cluster_fs: FileSystem, tmp_path: Path) -> str:
    """A directory in the cluster with `files`, and with `tokens` in parquet."""
    root = f"/trainer_io/{tmp_path.name}"
    cluster_fs.makedirs(f"{root}/files", exist_ok=True)
    cluster_fs.makedirs(f"{root}/tokens", exist_ok=True)
    for number in range(100):
        cluster_fs.write_bytes(f"{root}/files/{number:03}", bytes([number]) * (number * 37 % 5000))
    for part in range(3):
        rows = [list(range(part, part + 50 + i % 40)) for i in range(200)]
        table = pa.table({"id": range(200), "tokens": pa.array(rows, pa.list_(pa.uint8()))})
        pq.write_table(table, tmp_path / "part.parquet", row_group_size=64)
        content = (tmp_path / "part.parquet").read_bytes()
        cluster_fs.write_bytes(f"{root}/tokens/{part}.parquet", content)
    return root


def local_tokens() -> np.ndarray:
    rows = [range(part, part + 50 + i % 40) for part in range(3) for i in range(200)]
    return np.concatenate([np.array(row) for row in rows])


def test_files_come_back_by_url(local_cluster: LocalCluster, data: str) -> None:
    files = FileDataset(f"{local_cluster.url}{data}/files")
    assert files.names == [f"{number:03}" for number in range(100)]
    expected = [bytes([number]) * (number * 37 % 5000) for number in range(100)]
    assert files.__getitems__(range(100)) == expected
    rows = ParquetDataset(f"{local_cluster.url}{data}/tokens", columns=["id"])
    assert [row["id"] for row in rows.__getitems__([0, 199, 200, 599])] == [0, 199, 0, 199]


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
def test_workers_stream_the_epoch_and_resume(
    local_cluster: LocalCluster, data: str, workers: int, method: str | None
) -> None:
    windows = TokenDataset(f"{local_cluster.url}{data}/tokens", window=WINDOW)
    assert windows[0].tolist() == local_tokens()[:WINDOW].tolist(), "the parent has connected, too"

    def loader(count: int) -> StreamingLoader[torch.Tensor]:
        return StreamingLoader(
            StreamingDataset(windows, batch_size=16, seed=5),
            num_workers=count,
            multiprocessing_context=method if count else None,
        )

    first = loader(workers)
    seen = list(islice(first, 10))
    state = json.loads(json.dumps(first.state_dict()))
    second = loader(0)
    second.load_state_dict(state)
    seen += list(second)
    stream = local_tokens()
    whole = stream[: len(stream) // WINDOW * WINDOW].reshape(-1, WINDOW)
    got = torch.cat(seen).numpy()
    assert sorted(map(tuple, got)) == sorted(map(tuple, whole))


def test_a_checkpoint_in_the_cluster_comes_back(local_cluster: LocalCluster, data: str) -> None:
    path = f"{local_cluster.url}{data}/state.safetensors"
    state = {"weight": torch.rand(3_000_000), "steps": 7}
    for _ in range(2):
        checkpoint.save(state, path)
    loaded = checkpoint.load(path)
    assert torch.equal(loaded["weight"], state["weight"])
    assert loaded["steps"] == 7


def test_an_atomic_save_leaves_no_temporary_file(cluster_fs: FileSystem, data: str) -> None:
    cluster_fs.makedirs(f"{data}/checkpoints")
    path = f"{data}/checkpoints/state.safetensors"
    checkpoint.save({"step": 1}, path, storage=Fs3Storage(cluster_fs))
    assert cluster_fs.listdir(f"{data}/checkpoints") == ["state.safetensors"]


def test_the_command_describes_what_is_in_the_cluster(
    local_cluster: LocalCluster, data: str
) -> None:
    url = f"{local_cluster.url}{data}/tokens"
    command = [sys.executable, "-m", "trainer_io.cli", "dataset", "info", url, "--json"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(output)["rows"] == 600
