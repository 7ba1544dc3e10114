"""The chunk store through its binding: a target directory on a real file system."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fs3._native import ChunkStore, NativeError

NOT_FOUND, NO_SPACE, BUSY, UNAVAILABLE, CORRUPT = 2, 8, 9, 10, 14
CHUNK = (7, 0)
MIB = 1 << 20


def open_store(path: Path, capacity_bytes: int = 64 * MIB, boot_id: str = "") -> ChunkStore:
    return ChunkStore.open(str(path / "target"), capacity_bytes=capacity_bytes, boot_id=boot_id)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChunkStore]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def put(store: ChunkStore, chunk: tuple[int, int], version: int, offset: int, data: bytes) -> None:
    store.write(chunk, (1, version), offset, data)
    store.commit(chunk, (1, version))


def test_write_commit_read(store: ChunkStore) -> None:
    data = os.urandom(MIB)
    assert store.write(CHUNK, (1, 1), 0, data) == ((1, 1), MIB, False)
    with pytest.raises(NativeError) as caught:
        store.read(CHUNK, 0, MIB)  # not committed yet
    assert caught.value.code == NOT_FOUND
    assert store.read(CHUNK, 0, MIB, version=(1, 1)) == data
    store.commit(CHUNK, (1, 1))
    assert store.read(CHUNK, 12345, 54321) == data[12345 : 12345 + 54321]
    assert store.stat(CHUNK)["committed"]["length"] == MIB


def test_a_reopened_store_has_everything(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    data = os.urandom(300_000)
    put(store, CHUNK, 1, 0, data)
    put(store, CHUNK, 2, 100, b"small")
    put(store, (8, 3), 1, 0, b"other")
    used = store.space()["used"]
    store.close()
    store = open_store(tmp_path)
    assert store.read(CHUNK, 0, MIB) == data[:100] + b"small" + data[105:]
    assert [info["chunk"] for info in store.list_chunks((0, 0), 10)] == [CHUNK, (8, 3)]
    assert store.pending_chunks() == []
    assert store.space()["used"] <= used
    store.close()


def test_one_process_serves_a_target(store: ChunkStore, tmp_path: Path) -> None:
    assert store.pending_chunks() == []
    with pytest.raises(NativeError, match="served by another process") as caught:
        open_store(tmp_path)
    assert caught.value.code == BUSY


def test_a_flipped_bit_is_reported_never_returned(store: ChunkStore, tmp_path: Path) -> None:
    data = os.urandom(MIB)
    put(store, CHUNK, 1, 0, data)
    with open(tmp_path / "target" / "blocks" / f"{MIB}-0", "r+b") as file:
        file.seek(500_000)
        byte = file.read(1)[0]
        file.seek(500_000)
        file.write(bytes([byte ^ 4]))
    with pytest.raises(NativeError, match="does not match") as caught:
        store.read(CHUNK, 0, MIB)
    assert caught.value.code == CORRUPT
    assert store.counters()["corrupt_granules"] == 1
    assert store.read(CHUNK, 0, 400_000) == data[:400_000]
    store.replace(CHUNK, (1, 1), data)
    store.commit(CHUNK, (1, 1))
    assert store.read(CHUNK, 0, MIB) == data


def test_removed_space_comes_back_to_the_file_system(store: ChunkStore, tmp_path: Path) -> None:
    for index in range(8):
        put(store, (1, index), 1, 0, os.urandom(MIB))
    for index in range(8):
        store.remove((1, index), (1, 2))
        store.commit((1, index), (1, 2))
    store.flush()
    assert store.space()["used"] == 0
    store.close()
    open_store(tmp_path).close()
    blocks = tmp_path / "target" / "blocks"
    assert sum(file.stat().st_blocks * 512 for file in blocks.iterdir()) < MIB


def test_no_space_keeps_earlier_data(tmp_path: Path) -> None:
    store = open_store(tmp_path, capacity_bytes=4 * MIB)
    data = os.urandom(MIB)
    for index in range(4):
        put(store, (1, index), 1, 0, data)
    with pytest.raises(NativeError, match="full") as caught:
        put(store, (1, 4), 1, 0, data)
    assert caught.value.code == NO_SPACE
    assert all(store.read((1, index), 0, MIB) == data for index in range(4))
    store.close()


def test_a_closed_store_is_unavailable(store: ChunkStore) -> None:
    store.close()
    with pytest.raises(NativeError, match="closed") as caught:
        store.read(CHUNK, 0, 1)
    assert caught.value.code == UNAVAILABLE


def test_small_overwrites_cost_about_twice_their_size(store: ChunkStore) -> None:
    for index in range(16):
        put(store, (1, index), 1, 0, os.urandom(MIB))
    store.flush()
    before = store.counters()
    model = {index: bytearray(store.read((1, index), 0, MIB)) for index in range(16)}
    count = 4000
    for i in range(count):
        index, granule = (i * 7919) % 16, (i * 104729) % 256
        data = os.urandom(4096)
        put(store, (1, index), 2 + i, granule * 4096, data)
        model[index][granule * 4096 : (granule + 1) * 4096] = data
    store.flush()
    after = store.counters()
    for index in range(16):
        assert store.read((1, index), 0, MIB) == model[index]
    kinds = ("block_bytes", "log_bytes", "metadata_bytes")
    written = sum(after[kind] - before[kind] for kind in kinds)
    assert written / (count * 4096) < 2.5
    assert after["merged_chunks"] == 0


WRITER = """
import os, sys
from fs3._native import ChunkStore
store = ChunkStore.open(sys.argv[1], capacity_bytes=256 << 20, boot_id="this boot")
for i in range(1, 1_000_000):
    chunk = (1, i % 50)
    store.write(chunk, (1, i), 0, i.to_bytes(4, "little") * 5000)
    store.commit(chunk, (1, i))
    store.write((2, i % 50), (1, i), (i * 4096) % (1 << 20), i.to_bytes(4, "little") * 1024)
    os.write(1, b"%08d\\n" % i)
    if i % 100 == 0:
        store.flush()
"""


def test_kill_9_keeps_every_acknowledged_write(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "target")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(450)]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
    last = int([line for line in lines if line.endswith(b"\n")][-1])
    assert last >= 450
    store = open_store(tmp_path, capacity_bytes=256 * MIB, boot_id="this boot")
    assert store.counters()["dropped_at_open"] == 0
    for info in store.list_chunks((0, 0), 1000):
        newest = (info["pending"] or [info["committed"]])[-1]
        number = newest["version"][1]
        inode, index = info["chunk"]
        expected = max(i for i in range(1, last + 1) if i % 50 == index)
        assert number >= expected
        if inode == 1:
            data = store.read((1, index), 0, MIB, version=newest["version"])
            assert data == number.to_bytes(4, "little") * 5000
        else:
            data = store.read((2, index), number * 4096 % MIB, 4096, version=newest["version"])
            assert data == number.to_bytes(4, "little") * 1024
    store.close()
