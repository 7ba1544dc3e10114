"""File objects against `io.BytesIO`, their buffers, their failures, and forks."""

import gc
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings
from typing import Any, ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fs3.client.batch import _destination
from fs3.client.buffers import ReadWindow, WriteBuffer
from fs3.client.fake import FakeCluster
from fs3.client.file import File
from fs3.client.filesystem import FileSystem
from fs3.client.fresh import filled
from fs3.client.mode import parse_mode
from fs3.config.client import ClientConfig
from fs3.errors import InvalidArgument, NoSpace, StaleHandle, Unavailable
from fs3.units import KIB

CHUNK = 64 * KIB
SMALL = ClientConfig(
    metadata_deadline_s=1.0,
    write_buffer_bytes=2 * CHUNK,
    readahead_bytes_min=8 * KIB,
    readahead_bytes_max=256 * KIB,
)
positions = st.integers(0, 5 * CHUNK) | st.sampled_from([0, CHUNK - 1, CHUNK, 2 * CHUNK + 1])
sizes = st.integers(0, 300) | st.integers(0, 4 * CHUNK)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(CHUNK, SMALL)


@pytest.fixture
def fs(cluster: FakeCluster) -> FileSystem:
    return cluster.connect()


class FileMachine(RuleBasedStateMachine):
    """Any sequence of operations gives what `io.BytesIO` gives, and the same content at last."""

    @initialize(unbuffered=st.booleans())
    def start(self, unbuffered: bool) -> None:
        self.fs = FakeCluster(CHUNK, SMALL).connect()
        self.model = io.BytesIO()
        self.unbuffered = unbuffered
        self.opened = "w+b"
        self.open("w+b")
        self.written = 0

    def open(self, mode: str) -> None:
        buffering = 0 if self.unbuffered else -1
        file = self.fs.open("/f", mode, buffering)
        assert isinstance(file, File)
        self.file, self.opened = file, mode

    def bytes(self, size: int) -> bytes:
        self.written += 1
        return np.random.default_rng(self.written).bytes(size)

    @rule(size=sizes)
    def write(self, size: int) -> None:
        data = self.bytes(size)
        if self.opened.startswith("a"):
            self.model.seek(0, os.SEEK_END)
        assert self.file.write(data) == self.model.write(data)
        if size == 0 and self.opened.startswith("a"):
            self.file.seek(self.model.tell())

    @precondition(lambda self: not self.opened.startswith("a"))
    @rule(offset=positions, size=st.integers(1, 2 * CHUNK))
    def write_at(self, offset: int, size: int) -> None:
        data, here = self.bytes(size), self.model.tell()
        self.file.write_at(offset, data)
        self.model.seek(offset)
        self.model.write(data)
        self.model.seek(here)

    @rule(size=sizes)
    def read(self, size: int) -> None:
        assert self.file.read(size) == self.model.read(size)

    @rule()
    def read_all(self) -> None:
        assert self.file.read() == self.model.read()

    @rule(size=st.integers(0, 3 * CHUNK))
    def readinto(self, size: int) -> None:
        ours, theirs = bytearray(size), bytearray(size)
        assert self.file.readinto(ours) == self.model.readinto(theirs)
        assert ours == theirs

    @rule()
    def readline(self) -> None:
        assert self.file.readline() == self.model.readline()

    @rule(size=st.integers(1, 100))
    def peek(self, size: int) -> None:
        here = self.model.tell()
        expected = self.model.read(size)
        self.model.seek(here)
        seen = self.file.peek(size)
        assert seen[: len(expected)] == expected
        assert bool(seen) == bool(expected)

    @rule(offset=positions, size=st.integers(0, 2 * CHUNK))
    def read_at(self, offset: int, size: int) -> None:
        assert self.file.read_at(offset, size) == self.model.getvalue()[offset : offset + size]

    @rule(position=positions)
    def seek(self, position: int) -> None:
        assert self.file.seek(position) == self.model.seek(position)

    @rule(back=st.integers(0, CHUNK))
    def seek_from_end(self, back: int) -> None:
        back = min(back, len(self.model.getvalue()))
        assert self.file.seek(-back, os.SEEK_END) == self.model.seek(-back, os.SEEK_END)

    @rule(size=positions)
    def truncate(self, size: int) -> None:
        self.file.truncate(size)
        here = self.model.tell()
        grown = size - len(self.model.getvalue())
        self.model.truncate(size)
        if grown > 0:
            self.model.seek(0, os.SEEK_END)
            self.model.write(bytes(grown))
        self.model.seek(here)

    @rule()
    def flush(self) -> None:
        self.file.flush()
        assert self.fs.stat("/f").st_size == len(self.model.getvalue())

    @rule()
    def fsync(self) -> None:
        self.file.fsync()

    @rule(mode=st.sampled_from(["r+b", "a+b"]))
    def reopen(self, mode: str) -> None:
        self.file.close()
        assert self.fs.read_bytes("/f") == self.model.getvalue()
        self.open(mode)
        self.model.seek(0 if mode == "r+b" else len(self.model.getvalue()))

    @invariant()
    def same_position(self) -> None:
        assert self.file.tell() == self.model.tell()

    def teardown(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
            assert self.fs.read_bytes("/f") == self.model.getvalue()


FileMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestFileMachine = FileMachine.TestCase


# read_many.


@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(st.integers(0, 3 * CHUNK), min_size=1, max_size=4),
    samples=st.lists(
        st.tuples(st.integers(0, 3), positions, st.integers(0, 2 * CHUNK)), max_size=40
    ),
    given_memory=st.booleans(),
)
def test_read_many_is_the_same_as_slicing(
    files: list[int], samples: list[tuple[int, int, int]], given_memory: bool
) -> None:
    fs = FakeCluster(CHUNK, SMALL).connect()
    contents = {f"/{i}": np.random.default_rng(i).bytes(size) for i, size in enumerate(files)}
    for path, content in contents.items():
        fs.write_bytes(path, content)
    wanted = [(f"/{i % len(files)}", offset, length) for i, offset, length in samples]
    into = bytearray(sum(length for _, _, length in wanted)) if given_memory else None
    got = fs.read_many(wanted, into=into)
    assert [part.tobytes() for part in got] == [
        contents[path][offset : offset + length] for path, offset, length in wanted
    ]
    at = 0
    for path, offset, length in wanted:
        if into is not None:
            expected = contents[path][offset : offset + length]
            assert into[at : at + len(expected)] == expected
        at += length


def test_read_many_into_torch_and_others(fs: FileSystem) -> None:
    torch = pytest.importorskip("torch")
    fs.write_bytes("/f", np.arange(100, dtype=np.float32))
    tensor = torch.zeros(2, 10, dtype=torch.float32)
    fs.read_many("/f", [0, 40], 40, into=tensor)
    assert tensor[1].tolist() == list(range(10, 20))
    typed = np.zeros((2, 10), np.float32)
    fs.read_many("/f", np.array([0, 40], np.uint32), 40, into=typed)
    assert typed[1, 0] == 10.0


@pytest.mark.parametrize(
    ("into", "reason"),
    [
        (bytes(80), "writable"),
        (bytearray(79), "79 bytes"),
        (np.zeros((80, 2), np.uint8)[:, 0], "contiguous"),
    ],
)
def test_read_many_refuses_unfit_memory(fs: FileSystem, into: Any, reason: str) -> None:
    fs.write_bytes("/f", bytes(100))
    with pytest.raises(InvalidArgument, match=reason):
        fs.read_many("/f", [0, 20], 40, into=into)


@pytest.mark.parametrize("offsets", [[-1], [0.5], [[0]]])
def test_read_many_refuses_unfit_offsets(fs: FileSystem, offsets: Any) -> None:
    fs.write_bytes("/f", bytes(100))
    with pytest.raises(InvalidArgument):
        fs.read_many("/f", np.asarray(offsets), 1)


def test_read_many_opens_a_file_once_and_follows_a_replacement(cluster: FakeCluster) -> None:
    cluster.config = ClientConfig(open_cache_s=0.0)
    fs = cluster.connect()
    fs.write_bytes("/f", b"old")
    assert fs.read_many([("/f", 0, 3)])[0].tobytes() == b"old"
    fs.write_bytes("/new", b"new!")
    fs.rename("/new", "/f")
    assert fs.read_many([("/f", 0, 4)])[0].tobytes() == b"new!"
    fs.write_bytes("/f", b"longer")
    assert fs.read_many([("/f", 0, 9)])[0].tobytes() == b"longer"


def test_read_many_asks_the_metadata_service_once_for_many_files(cluster: FakeCluster) -> None:
    fs = cluster.connect()
    for i in range(100):
        fs.write_bytes(f"/{i}", b"%d" % i)
    before = cluster.channel.calls
    samples = [(f"/{i % 100}", 0, 2) for i in range(1000)]
    fs.read_many(samples)
    fs.read_many(samples)
    assert cluster.channel.calls == before + 1


def test_read_many_forgets_the_oldest_files(cluster: FakeCluster) -> None:
    cluster.config = ClientConfig(open_cache_files=3)
    with cluster.connect() as fs:
        for i in range(10):
            fs.write_bytes(f"/{i}", b"x")
            fs.read_many([(f"/{i}", 0, 1)])
        assert cluster.data.open_handles() == 3


def test_fresh_memory_is_as_large_as_needed() -> None:
    assert _destination(None, 10).shape == (10,)


# Round trips.


def test_small_files_take_few_round_trips(cluster: FakeCluster) -> None:
    fs = cluster.connect()
    fs.mkdir("/d")

    def cost(operation: Any) -> tuple[int, int, int]:
        calls, before = cluster.channel.calls, fs.counters()
        operation()
        after = fs.counters()
        return (
            cluster.channel.calls - calls,
            after["reads"] - before["reads"],
            after["writes"] - before["writes"],
        )

    def through_a_file(mode: str, action: Any) -> None:
        with fs.open("/d/g", mode) as file:
            action(file)

    assert cost(lambda: fs.write_bytes("/d/f", b"x" * 4096)) == (2, 0, 1)
    assert cost(lambda: fs.read_bytes("/d/f")) == (1, 1, 0)
    assert cost(lambda: through_a_file("wb", lambda f: f.write(b"x" * 4096))) == (2, 0, 1)
    assert cost(lambda: through_a_file("w", lambda f: f.write("x" * 4096))) == (2, 0, 1)
    assert cost(lambda: through_a_file("rb", lambda f: f.read())) == (1, 1, 0)
    assert cost(lambda: through_a_file("r", lambda f: f.read())) == (1, 1, 0)
    assert cost(lambda: through_a_file("rb", lambda f: f.readinto(bytearray(8192)))) == (1, 1, 0)


def test_sequential_writes_leave_in_whole_chunks(cluster: FakeCluster) -> None:
    fs = cluster.connect()
    sent: list[tuple[int, int]] = []
    with fs.open("/f", "wb") as file:
        write = cluster.data.write

        def spy(requests: Any, source: Any, timeout_s: float) -> Any:
            sent.extend((int(r["file_offset"]), int(r["length"])) for r in requests)
            return write(requests, source, timeout_s)

        cluster.data.write = spy  # type: ignore[method-assign]
        for _ in range(700):
            file.write(b"x" * 1000)
    assert all(offset % CHUNK == 0 for offset, _ in sent)
    assert all(length % CHUNK == 0 for _, length in sorted(sent)[:-1])
    assert sum(length for _, length in sent) == 700_000


# Failures.


def test_a_failed_write_is_raised_at_close(fs: FileSystem, cluster: FakeCluster) -> None:
    file = fs.open("/f", "wb")
    file.write(b"x" * 10)
    cluster.data.fail_with = NoSpace.number
    with pytest.raises(NoSpace, match=r"/f: write of 10 bytes at 0 failed: no space"):
        file.close()
    assert file.closed
    assert cluster.metadata.open_sessions() == 0
    cluster.data.fail_with = 0
    assert fs.stat("/f").st_size == 0


def test_a_failed_write_of_the_second_thread_is_raised(
    fs: FileSystem, cluster: FakeCluster
) -> None:
    file = fs.open("/f", "wb")
    cluster.data.fail_with = Unavailable.number

    def write_much() -> None:
        with file:
            for _ in range(100):
                file.write(b"x" * 50_000)

    with pytest.raises(Unavailable, match="no replica could be reached"):
        write_much()


def test_errors_at_close_of_text_are_raised(fs: FileSystem, cluster: FakeCluster) -> None:
    file = fs.open("/f", "w")
    file.write("x")
    cluster.data.fail_with = NoSpace.number
    with pytest.raises(NoSpace):
        file.close()
    assert cluster.metadata.open_sessions() == 0
    cluster.data.fail_with = 0


def test_a_file_that_is_cut_again_and_again_gives_up(fs: FileSystem, cluster: FakeCluster) -> None:
    fs.write_bytes("/f", b"x")
    with fs.open("/f", "rb") as file:
        cluster.data.fail_with = StaleHandle.number
        with pytest.raises(StaleHandle, match="keep cutting"):
            file.read()


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_an_unclosed_writer_warns_and_stores(fs: FileSystem, mode: str) -> None:
    file = fs.open("/f", mode)
    file.write(b"kept" if "b" in mode else "kept")  # type: ignore[arg-type]
    references = [file]
    del file
    with pytest.warns(ResourceWarning, match="/f: was never closed"):
        references.clear()
    assert fs.read_bytes("/f") == b"kept"


@pytest.mark.parametrize(("mode", "data"), [("wb", b"kept"), ("w", "kept")])
def test_writers_left_open_are_stored_when_the_interpreter_ends(mode: str, data: Any) -> None:
    script = f"""
import atexit, warnings
from fs3.client.fake import FakeCluster
warnings.simplefilter("ignore", ResourceWarning)
cluster = FakeCluster()
atexit.register(lambda: print(cluster.connect().read_text("/f")))
fs = cluster.connect()
file = fs.open("/f", {mode!r})
file.write({data!r})
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert (result.stdout, result.stderr) == ("kept\n", "")


def test_a_writer_that_cannot_be_stored_late_says_so(fs: FileSystem, cluster: FakeCluster) -> None:
    file = fs.open("/f", "wb")
    file.write(b"x")
    cluster.data.fail_with = NoSpace.number
    with pytest.warns(ResourceWarning, match="/f: could not be stored: .*no space"):
        fs.close()
    assert file.closed


def test_an_unclosed_reader_is_fine(fs: FileSystem) -> None:
    fs.write_bytes("/f", b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = fs.open("/f", "rb")
        del file
        gc.collect()


def test_a_closed_file_system_refuses(fs: FileSystem) -> None:
    _ = fs.config
    fs.close()
    with pytest.raises(InvalidArgument, match="closed"):
        fs.stat("/")


# Forks and copies.


def _in_child(work: Any) -> Any:
    """The result of `work()` in a forked child; its exception is raised here."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def run() -> None:
        try:
            there.send((True, work()))
        except BaseException as error:
            there.send((False, error))

    child = context.Process(target=run)
    child.start()
    good, value = here.recv() if here.poll(20) else (False, TimeoutError("the child hangs"))
    child.kill() if isinstance(value, TimeoutError) else child.join(20)
    if not good:
        raise value
    return value


def test_a_forked_child_connects_anew(fs: FileSystem) -> None:
    fs.write_bytes("/f", b"data")
    reader = fs.open("/f", "rb")
    assert reader.read(1) == b"d"
    parent = fs._link.get()

    def child() -> Any:
        rest = reader.read()
        samples = fs.read_many([("/f", 1, 2)])[0].tobytes()
        return rest, samples, fs.counters()["reads"], fs._link.get() is parent

    rest, samples, reads, same = _in_child(child)
    assert (rest, samples, same) == (b"ata", b"at", False)
    assert reads == 1, "the child counts only its own reads"
    assert reader.read() == b"ata"


def test_a_writer_stays_with_the_parent(fs: FileSystem) -> None:
    file = fs.open("/f", "wb")
    file.write(b"once")

    def child() -> str:
        with pytest.raises(InvalidArgument) as caught:
            file.write(b"twice")
        file.close()
        return str(caught.value)

    assert "before a fork" in _in_child(child)
    file.close()
    assert fs.read_bytes("/f") == b"once"


async def test_asyncio_face_survives_a_fork(fs: FileSystem) -> None:
    import asyncio

    await fs.aio.write_bytes("/f", b"x")
    assert _in_child(lambda: asyncio.run(fs.aio.read_bytes("/f"))) == b"x"


class Opener:
    """A picklable way to a cluster of this process."""

    clusters: ClassVar[dict[int, FakeCluster]] = {}

    def __init__(self, cluster: FakeCluster) -> None:
        self.key = id(cluster)
        self.clusters[self.key] = cluster

    def __call__(self) -> Any:
        return self.clusters[self.key].connect()._link.open_connection()


def test_a_pickled_file_system_connects_again(cluster: FakeCluster) -> None:
    fs = FileSystem(Opener(cluster), "fs3://fake:1")
    fs.write_bytes("/f", b"x")
    copy = pickle.loads(pickle.dumps(fs))
    assert copy.read_bytes("/f") == b"x"
    assert copy._link.get() is not fs._link.get()


# Buffers.


def test_the_write_buffer_ends_on_chunk_boundaries() -> None:
    buffer = WriteBuffer(2 * CHUNK, CHUNK)
    assert buffer.room(100) == 2 * CHUNK - 100
    buffer.put(100, memoryview(b"x" * 50))
    assert (buffer.start, buffer.end) == (100, 150)
    assert buffer.room(150) == 2 * CHUNK - 150
    assert buffer.room(120) == 2 * CHUNK - 120
    assert buffer.room(151) == buffer.room(99) == 0
    buffer.put(120, memoryview(b"y" * 5))
    start, taken = buffer.take()
    assert (start, bytes(taken)) == (100, b"x" * 20 + b"y" * 5 + b"x" * 25)
    assert buffer.size == 0
    assert buffer.whole_chunks(CHUNK - 10, CHUNK) == 10
    assert buffer.whole_chunks(0, CHUNK - 1) == 0


def test_buffers_reuse_their_memory() -> None:
    buffer = WriteBuffer(2 * CHUNK, CHUNK)
    buffer.put(0, memoryview(bytes(2 * CHUNK)))
    _, first = buffer.take()
    buffer.give_back(first)
    buffer.put(0, memoryview(bytes(2 * CHUNK)))
    assert buffer.take()[1].obj is first.obj


def test_the_read_window_gives_only_what_it_holds() -> None:
    window = ReadWindow()
    window.space(100, 10)[:] = b"0123456789"
    into = memoryview(bytearray(20))
    assert window.copy_to(100, into) == 0
    window.size = 10
    assert window.copy_to(103, into) == 7
    assert bytes(into[:7]) == b"3456789"
    assert window.copy_to(99, into) == window.copy_to(110, into) == 0
    assert bytes(window.view(108, 5)) == b"89"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("r", os.O_RDONLY),
        ("rb+", os.O_RDWR),
        ("w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ("ab", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ("x+t", os.O_RDWR | os.O_CREAT | os.O_EXCL),
    ],
)
def test_modes(text: str, flags: int) -> None:
    mode = parse_mode(text)
    assert mode.flags == flags
    assert mode.binary == ("b" in text)


@pytest.mark.parametrize("size", [0, 10, 200_000])
def test_bytes_are_filled_in_place_and_cut_where_the_file_ends(size: int) -> None:
    data = np.random.default_rng(0).bytes(size)

    def fill(into: memoryview) -> int:
        into[: size // 2] = data[: size // 2]
        return size // 2

    def fill_all(into: memoryview) -> int:
        into[:] = data
        return size

    assert filled(size, fill) == data[: size // 2]
    whole = filled(size, fill_all)
    assert (whole, hash(whole), type(whole)) == (data, hash(data), bytes)


def test_memory_of_an_interrupted_read_outlives_it() -> None:
    views: list[memoryview] = []

    def interrupt(into: memoryview) -> int:
        views.append(into)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        filled(1_000_000, interrupt)
    gc.collect()
    views[0][:] = b"x" * 1_000_000  # as a read does that was on its way
    assert bytes(views[0]) == b"x" * 1_000_000
