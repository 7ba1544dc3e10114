"""What background work expects of chunks, on the fake and on real storage servers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from fs3._native import IoClient
from fs3.errors import StaleHandle, from_number
from fs3.ids import ChainId, InodeId
from fs3.model.inode import Layout
from fs3.model.placement import stripe_chains
from fs3.units import KIB
from meta_service.jobs.chunks import Chunks, StoredFile
from meta_service.jobs.native_chunks import NativeChunks
from tests.fake_chunks import FakeChunks
from tests.filesystems import NativeStorage
from tests.meta_world import ROUTING, TABLE

CHUNK = 64 * KIB


@dataclass
class Storage:
    """The chunks under test, and a client that writes up to an offset."""

    chunks: Chunks
    write: Callable[[StoredFile, int], None]
    inodes: Iterator[int]

    def file(self, version: int = 0, stripe: int = 4) -> StoredFile:
        layout = Layout(TABLE.id, TABLE.version, CHUNK, stripe, seed=7)
        return StoredFile(InodeId(next(self.inodes)), layout, 0, version)


_inodes = iter(range(1 << 40, 1 << 41))
"""Never used twice, also between tests: real storage remembers what it removed."""


@pytest.fixture(params=["fake", "native"])
def storage(request: pytest.FixtureRequest) -> Iterator[Storage]:
    if request.param == "fake":
        fake = FakeChunks()

        def write_fake(file: StoredFile, end: int) -> None:
            fake.write(file.inode, end, file.truncate_version)

        yield Storage(fake, write_fake, _inodes)
        return
    native: NativeStorage = request.getfixturevalue("native_storage")
    writer, jobs = native.client(), native.client()
    yield Storage(
        NativeChunks(jobs, lambda: ROUTING, timeout_s=10.0),
        lambda file, end: write_native(writer, file, end),
        _inodes,
    )
    writer.close()
    jobs.close()


def write_native(io: IoClient, file: StoredFile, end: int) -> None:
    """One byte right before `end`, so that a file of many chunks costs little."""
    chains = stripe_chains([ChainId(c) for c in TABLE.chains], file.layout.stripe, file.layout.seed)
    handle = io.open_file(file.inode, CHUNK, chains, 0, file.truncate_version)
    request = np.array([(handle, 0, end - 1, 1, 0)], dtype=_native_request())
    [result] = io.write(request, b"x", 10.0)
    io.close_file(handle)
    if result["code"]:
        raise from_number(int(result["code"]), "write")


def _native_request() -> np.dtype[np.void]:
    from fs3._native import IO_REQUEST

    return np.dtype(IO_REQUEST)


@pytest.mark.parametrize("end", [1, CHUNK, CHUNK + 1, 7 * CHUNK + 5])
def test_the_end_of_data_is_found(storage: Storage, end: int) -> None:
    file = storage.file()
    assert storage.chunks.end_of_data(file) == 0
    storage.write(file, end)
    assert storage.chunks.end_of_data(file) == end


def test_removed_files_hold_nothing_and_take_nothing(storage: Storage) -> None:
    files = [storage.file() for _ in range(20)]
    for n, file in enumerate(files):
        storage.write(file, 1 + n * CHUNK // 2)
    kept = storage.file()
    storage.write(kept, 5)
    removed = [file._replace(truncate_version=1) for file in files]
    assert storage.chunks.remove(removed) == [None] * 20
    assert [storage.chunks.end_of_data(file) for file in removed] == [0] * 20
    assert storage.chunks.end_of_data(kept) == 5
    with pytest.raises(StaleHandle):  # only a chunk that was there can know
        storage.write(files[0], 1)


def test_removing_twice_and_removing_nothing(storage: Storage) -> None:
    file = storage.file(version=1)
    assert storage.chunks.remove([]) == []
    assert storage.chunks.remove([file]) == [None]
    assert storage.chunks.remove([file, storage.file(version=1)]) == [None, None]


@pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 7, 100 * CHUNK])
def test_a_cut_leaves_nothing_behind_it(storage: Storage, length: int) -> None:
    file = storage.file()
    for end in range(CHUNK, 8 * CHUNK, CHUNK):
        storage.write(file, end)
    cut = file._replace(length=length, truncate_version=1)
    storage.chunks.cut(cut)
    storage.chunks.cut(cut)
    assert storage.chunks.end_of_data(cut) == min(length, 7 * CHUNK)
    if length < 7 * CHUNK:
        with pytest.raises(StaleHandle):
            storage.write(file, 7 * CHUNK)
    storage.write(cut, 9 * CHUNK)
    assert storage.chunks.end_of_data(cut) == 9 * CHUNK
