"""Data sets are tested on both kinds of storage: this machine's disk, and a cluster in memory."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fs3.client.fake import FakeCluster
from trainer_io.checkpoint.storage import Fs3Storage, LocalStorage, Storage
from trainer_io.dataset.source import FileSource

Write = Callable[[str, bytes], None]


@dataclass(frozen=True)
class Place:
    """Somewhere to keep files: `root` in `storage`, filled by `write(name, content)`."""

    root: str
    storage: Storage
    write: Write

    @property
    def source(self) -> FileSource:
        return self.storage.source

    def write_table(self, name: str, table: pa.Table, *, row_group_size: int | None = None) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=row_group_size)
        self.write(name, sink.getvalue().to_pybytes())


def local_place(root: Path) -> Place:
    def write(name: str, content: bytes) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return Place(os.fspath(root), LocalStorage(), write)


@pytest.fixture(params=["local", "fs3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield local_place(tmp_path)
        return
    with FakeCluster().connect() as filesystem:

        def write(name: str, content: bytes) -> None:
            path = f"/data/{name}"
            filesystem.makedirs(os.path.dirname(path), exist_ok=True)
            filesystem.write_bytes(path, content)

        yield Place("/data", Fs3Storage(filesystem), write)


@pytest.fixture
def local(tmp_path: Path) -> Place:
    return local_place(tmp_path)
