"""The model test of file objects and read_many on real storage servers, in this process."""

import io
import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, run_state_machine_as_test

from fs3.client.filesystem import FileSystem
from tests.filesystems import NativeStorage
from tests.unit.client.test_client_file import CHUNK, FileMachine


class OneFile:
    """A file system whose only file, `/f`, has a name of its own in the cluster."""

    def __init__(self, fs: FileSystem, name: str) -> None:
        self._fs = fs
        self._name = name

    def open(self, path: str, mode: str, buffering: int) -> Any:
        assert path == "/f"
        return self._fs.open(self._name, mode, buffering)

    def read_bytes(self, path: str) -> bytes:
        assert path == "/f"
        return self._fs.read_bytes(self._name)

    def stat(self, path: str) -> Any:
        assert path == "/f"
        return self._fs.stat(self._name)


def test_files_are_as_bytes_io(native_storage: NativeStorage) -> None:
    names = itertools.count()
    with native_storage.cluster.connect() as fs:
        fs.mkdir("/model")
        fs.set_layout("/model", chunk_size=CHUNK, stripe=3)

        class NativeMachine(FileMachine):
            @initialize(unbuffered=st.booleans())
            def start(self, unbuffered: bool) -> None:
                self.fs = OneFile(fs, f"/model/{next(names)}")  # type: ignore[assignment]
                self.model = io.BytesIO()
                self.unbuffered = unbuffered
                self.written = 0
                self.open("w+b")

        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            NativeMachine,
            settings=settings(
                max_examples=25,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


def test_read_many_in_any_order_and_size(native_fs: FileSystem) -> None:
    random = np.random.default_rng(0)
    contents = {f"/many-{i}": random.bytes(int(n)) for i, n in enumerate((0, 10, 70_000, 3 << 20))}
    for path, data in contents.items():
        native_fs.write_bytes(path, data)
    samples = []
    for _ in range(3_000):
        path = f"/many-{random.integers(0, 4)}"
        offset = int(random.integers(0, len(contents[path]) + 10))
        samples.append((path, offset, int(random.integers(0, 20_000))))
    got = native_fs.read_many(samples)
    for (path, offset, length), part in zip(samples, got, strict=True):
        assert part.tobytes() == contents[path][offset : offset + length]
    assert native_fs.counters()["reads"] > 0
