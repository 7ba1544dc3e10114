"""What a FileSystem promises, on the fake and on a real cluster."""

import io
import os
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fs3.client.filesystem import FileSystem
from fs3.errors import InvalidArgument, NotEmpty, StaleHandle

Content = Callable[[int], bytes]


@pytest.fixture(
    params=["fake", "namespace", "native", pytest.param("cluster", marks=pytest.mark.cluster)]
)
def fs(request: pytest.FixtureRequest) -> FileSystem:
    """The file system under test."""
    found: FileSystem = request.getfixturevalue(f"{request.param}_fs")
    return found


@pytest.fixture
def root(fs: FileSystem) -> Iterator[str]:
    """A fresh directory of this test."""
    path = f"/contract-{uuid.uuid4().hex}"
    fs.mkdir(path)
    yield path
    fs.remove_tree(path)


@pytest.fixture
def content() -> Content:
    """So many bytes that look random and are the same each time."""
    return lambda size: np.random.default_rng(size).bytes(size)


# Files as a whole.


@pytest.mark.parametrize("size", [0, 1, 4096, 65_535, 65_536, 65_537, 1_000_003])
def test_bytes_come_back(fs: FileSystem, root: str, content: Content, size: int) -> None:
    assert fs.write_bytes(f"{root}/f", content(size)) == size
    assert fs.read_bytes(f"{root}/f") == content(size)
    assert fs.stat(f"{root}/f").st_size == size


def test_write_bytes_replaces_what_was_there(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"a" * 100_000)
    fs.write_bytes(f"{root}/f", b"short")
    assert fs.read_bytes(f"{root}/f") == b"short"


def test_old_bytes_never_show_up_behind_a_rewrite(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"secret" * 50_000)
    fs.write_bytes(f"{root}/f", b"new")
    fs.truncate(f"{root}/f", 200_000)
    assert fs.read_bytes(f"{root}/f") == b"new" + bytes(199_997)


def test_text_comes_back(fs: FileSystem, root: str) -> None:
    fs.write_text(f"{root}/f", "Grüße\nzwei\n")
    assert fs.read_text(f"{root}/f") == "Grüße\nzwei\n"
    with fs.open(f"{root}/f") as file:
        assert list(file) == ["Grüße\n", "zwei\n"]
    with fs.open(f"{root}/f", "rb") as binary:
        assert binary.readlines() == ["Grüße\n".encode(), b"zwei\n"]


def test_long_lines_and_many_lines(fs: FileSystem, root: str) -> None:
    lines = [f"{i}:" + "x" * (i % 977) + "\n" for i in range(3_000)]
    fs.write_text(f"{root}/f", "".join(lines))
    with fs.open(f"{root}/f") as file:
        assert list(file) == lines
    with fs.open(f"{root}/f", "rb") as binary:
        assert [line.decode() for line in binary] == lines


# Modes of open.


def test_reading_a_missing_file_names_it(fs: FileSystem, root: str) -> None:
    with pytest.raises(FileNotFoundError, match="missing") as caught:
        fs.open(f"{root}/missing", "rb")
    assert caught.value.filename == f"{root}/missing"


def test_x_creates_only_once(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "x") as file:
        file.write("one")
    with pytest.raises(FileExistsError):
        fs.open(f"{root}/f", "x")
    assert fs.read_text(f"{root}/f") == "one"


def test_w_empties_and_r_plus_does_not(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"0123456789")
    with fs.open(f"{root}/f", "r+b") as file:
        file.write(b"ab")
        assert file.read(2) == b"23"
    assert fs.read_bytes(f"{root}/f") == b"ab23456789"
    with fs.open(f"{root}/f", "wb"):
        pass
    assert fs.read_bytes(f"{root}/f") == b""


def test_w_plus_reads_back_what_it_wrote(fs: FileSystem, root: str, content: Content) -> None:
    data = content(200_000)
    with fs.open(f"{root}/f", "w+b") as file:
        file.write(data)
        file.seek(1_000)
        assert file.read(150_000) == data[1_000:151_000]


def test_a_appends_wherever_the_position_is(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"head")
    with fs.open(f"{root}/f", "a+b") as file:
        assert file.tell() == 4
        file.seek(0)
        assert file.read(2) == b"he"
        file.write(b"-tail")
        assert file.tell() == 9
        file.seek(0)
        assert file.read() == b"head-tail"


def test_two_appending_handles_do_not_overwrite_each_other(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "ab") as one, fs.open(f"{root}/f", "ab") as two:
        for i in range(4):
            one.write(b"one%d " % i)
            one.flush()
            two.write(b"two%d " % i)
            two.flush()
    expected = b"".join(b"one%d two%d " % (i, i) for i in range(4))
    assert fs.read_bytes(f"{root}/f") == expected


def test_wrong_direction_is_refused(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "wb") as file, pytest.raises(io.UnsupportedOperation):
        file.read()
    with fs.open(f"{root}/f", "rb") as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"x")


@pytest.mark.parametrize("mode", ["", "z", "rw", "rbt", "bb", "+", "rr"])
def test_unknown_modes_are_refused(fs: FileSystem, root: str, mode: str) -> None:
    with pytest.raises(InvalidArgument):
        fs.open(f"{root}/f", mode)


def test_unbuffered_writes_are_visible_at_once(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "wb", buffering=0) as file:
        file.write(b"now")
        assert fs.read_bytes(f"{root}/f") == b"now"


# Position, holes, cuts.


def test_seek_and_tell(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"0123456789")
    with fs.open(f"{root}/f", "rb") as file:
        assert file.seek(3) == 3
        assert file.read(2) == b"34"
        assert file.seek(-1, os.SEEK_CUR) == 4
        assert file.seek(-2, os.SEEK_END) == 8
        assert file.read() == b"89"
        assert file.seek(100) == 100
        assert file.read() == b""
        with pytest.raises(InvalidArgument):
            file.seek(-1)


def test_holes_read_as_zeros(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "wb") as file:
        file.seek(300_000)
        file.write(b"end")
    assert fs.read_bytes(f"{root}/f") == bytes(300_000) + b"end"


def test_truncate_of_an_open_file(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "w+b") as file:
        file.write(b"x" * 100_000)
        assert file.truncate(70_000) == 70_000
        assert file.tell() == 100_000
        file.truncate(80_000)
        file.seek(69_999)
        assert file.read() == b"x" + bytes(10_000)
        file.seek(0)
        file.truncate()
        assert file.read() == b""
    assert fs.stat(f"{root}/f").st_size == 0


def test_a_reader_follows_a_cut_by_another_handle(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"a" * 200_000)
    with fs.open(f"{root}/f", "rb") as reader:
        assert reader.read(10) == b"a" * 10
        fs.truncate(f"{root}/f", 100)
        fs.truncate(f"{root}/f", 150_000)
        assert reader.read_at(90, 20) == b"a" * 10 + bytes(10)


def test_a_writer_follows_a_cut_by_another_handle(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "wb") as writer:
        writer.write(b"a" * 100_000)
        writer.flush()
        fs.truncate(f"{root}/f", 10)
        writer.seek(0)
        writer.write(b"b")
    assert fs.read_bytes(f"{root}/f") == b"b" + b"a" * 9


_CHUNK_NEVER_WRITTEN = 40 * 1024 * 1024


@pytest.mark.parametrize("length", [0, 10, 150_000])
@pytest.mark.parametrize("how", ["close", "flush", "fsync", "write_at", "second"])
def test_a_writer_follows_a_cut_into_a_chunk_that_cannot_know_of_it(
    fs: FileSystem, root: str, length: int, how: str
) -> None:
    path = f"{root}/f"
    fs.write_bytes(path, b"a" * 100_000)
    with fs.open(path, "r+b") as writer, fs.open(path, "r+b") as second:
        second.write_at(50_000, b"c" * 50_000)
        if how == "second":
            second.truncate(length)
        elif length:
            fs.truncate(path, length)
        else:
            fs.open(path, "wb").close()
        writer.seek(_CHUNK_NEVER_WRITTEN)
        if how == "write_at":
            writer.write_at(_CHUNK_NEVER_WRITTEN, b"bytes")
        else:
            writer.write(b"bytes")
        if how == "flush":
            writer.flush()
        elif how == "fsync":
            writer.fsync()
    with fs.open(path, "rb") as reader:
        kept = min(length, 50_000)
        assert reader.read_at(0, 50_000) == b"a" * kept + bytes(50_000 - kept)
        assert reader.read_at(_CHUNK_NEVER_WRITTEN, 10) == b"bytes"


@pytest.mark.parametrize("how", ["close", "flush", "fsync"])
def test_a_write_after_a_cut_by_another_client_is_stored_or_refused(
    fs: FileSystem, root: str, how: str
) -> None:
    other = FileSystem(fs._link.open_connection, fs.url)
    path = f"{root}/f"
    fs.write_bytes(path, b"a" * 100)
    writer = fs.open(path, "r+b")
    other.truncate(path, 10)
    refused = False
    try:
        writer.write_at(_CHUNK_NEVER_WRITTEN, b"bytes")
        if how != "close":
            getattr(writer, how)()
    except StaleHandle:
        refused = True
    try:
        writer.close()
    except StaleHandle:
        refused = True
    stored = fs.stat(path).st_size == _CHUNK_NEVER_WRITTEN + 5
    assert stored != refused
    if stored:
        with fs.open(path, "rb") as reader:
            assert reader.read_at(_CHUNK_NEVER_WRITTEN, 10) == b"bytes"
    other.close()


def test_whole_files_written_at_once_by_two_clients_are_one_of_them(
    fs: FileSystem, root: str
) -> None:
    other = FileSystem(fs._link.open_connection, fs.url)
    path = f"{root}/f"

    def write(client: FileSystem, byte: bytes) -> None:
        for _ in range(20):
            client.write_bytes(path, byte * 1_000)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, fs, b"a"), pool.submit(write, other, b"b")]:
            done.result()
    other.close()
    assert fs.read_bytes(path) in (b"", b"a" * 1_000, b"b" * 1_000)


def test_a_write_while_the_length_is_published_is_published_too(fs: FileSystem, root: str) -> None:
    path = f"{root}/f"
    with fs.open(path, "wb") as writer:

        def write() -> None:
            for n in range(200):
                writer.write_at(n, b"x")

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(write)
            while not done.done():
                writer.flush()
    assert fs.read_bytes(path) == b"x" * 200


@pytest.mark.parametrize("start", [0, 2, 65_530, 65_536, 70_000])
@pytest.mark.parametrize("size", [10, 66_029, 1_500_000, 2_097_000, 3_000_000])
def test_a_hole_before_what_is_still_buffered_reads_as_zeros(
    fs: FileSystem, root: str, start: int, size: int
) -> None:
    expected = b"a" * 65_536 + bytes(2_097_151 - 65_536) + b"b" * 4_095
    fs.write_bytes(f"{root}/f", expected[:65_536])
    with fs.open(f"{root}/f", "r+b") as file:
        file.seek(2_097_151)
        file.write(b"b" * 4_095)
        file.seek(start)
        assert file.read(size) == expected[start : start + size]


# Numbers that no file has.


def test_an_empty_batch_of_columns(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"0123456789")
    assert fs.read_many(f"{root}/f", [], 5).shape == (0, 5)
    assert fs.read_many(f"{root}/f", [], []) == []


@pytest.mark.parametrize(
    "read",
    [
        lambda fs, path: fs.read_many([(path, 2**63 - 1, 5)]),
        lambda fs, path: fs.read_many([(path, 2**63, 5)]),
        lambda fs, path: fs.read_many([(path, 2**64, 5)]),
        lambda fs, path: fs.read_many([(path, 0, 2**62)] * 4),
        lambda fs, path: fs.read_many([(path, -1, 5)]),
        lambda fs, path: fs.read_many([(path, 0, 2.5)]),
        lambda fs, path: fs.read_many(path, [1, 2], [1]),
        lambda fs, path: fs.read_many(path, [1, 2], [1, 2, 3]),
        lambda fs, path: fs.open(path, "rb").read_at(-5, 3),
        lambda fs, path: fs.open(path, "rb").read_at(0, -3),
        lambda fs, path: fs.open(path, "rb").readinto_at(-5, bytearray(3)),
        lambda fs, path: fs.open(path, "r+b").write_at(-5, b"x"),
        lambda fs, path: fs.open(path, "r+b").write_at(2**63 - 2, b"xxx"),
        lambda fs, path: fs.open(path, "r+b").write_at(2**64, b"x"),
        lambda fs, path: fs.truncate(path, 2**70),
        lambda fs, path: fs.open(path, "r+b").truncate(2**70),
        lambda fs, path: fs.utime(path, (-1e30, 0)),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_numbers_that_no_file_has_are_refused(
    fs: FileSystem, root: str, read: Callable[[FileSystem, str], object]
) -> None:
    fs.write_bytes(f"{root}/f", b"0123456789")
    with pytest.raises(InvalidArgument):
        read(fs, f"{root}/f")
    assert fs.read_bytes(f"{root}/f") == b"0123456789"


# Several handles.


def test_a_reader_sees_what_a_writer_flushed(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "wb") as writer, fs.open(f"{root}/f", "rb") as reader:
        assert reader.read() == b""
        writer.write(b"first")
        writer.flush()
        assert reader.read() == b"first"
        writer.write(b" second")
        writer.fsync()
        assert reader.read() == b" second"


def test_two_writers_of_different_ranges_keep_the_longer_length(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "wb") as low, fs.open(f"{root}/f", "r+b") as high:
        high.seek(100_000)
        high.write(b"high")
        low.write(b"low")
        high.close()
    assert fs.read_bytes(f"{root}/f") == b"low" + bytes(99_997) + b"high"


def test_offsets_are_independent_of_the_position_and_of_threads(
    fs: FileSystem, root: str, content: Content
) -> None:
    data = content(400_000)
    fs.write_bytes(f"{root}/f", data)
    wrong = []
    with fs.open(f"{root}/f", "rb") as file:

        def read(start: int) -> None:
            for offset in range(start, 390_000, 7_919):
                if file.read_at(offset, 5_000) != data[offset : offset + 5_000]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(i * 100,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert file.tell() == 0
    assert wrong == []


def test_write_at_and_readinto_at(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "w+b") as file:
        file.write(b"0123456789")
        file.write_at(2, b"ab")
        into = bytearray(4)
        assert file.readinto_at(1, into) == 4
        assert bytes(into) == b"1ab4"
        assert file.read_at(8, 100) == b"89"


def test_readinto_fills_numpy_and_stops_at_the_end(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", np.arange(1_000, dtype=np.int64))
    into = np.zeros(1_500, np.int64)
    with fs.open(f"{root}/f", "rb") as file:
        assert file.readinto(into.data) == 8_000
        assert file.readinto(into.data) == 0
    assert np.array_equal(into[:1_000], np.arange(1_000))


def test_a_closed_file_refuses(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/f", "wb")
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.write(b"x")


def test_a_large_file_written_in_odd_pieces(fs: FileSystem, root: str, content: Content) -> None:
    data = content(3_000_000)
    with fs.open(f"{root}/f", "wb") as file:
        for start in range(0, len(data), 70_001):
            file.write(data[start : start + 70_001])
    with fs.open(f"{root}/f", "rb") as file:
        pieces = list(iter(lambda: file.read(99_991), b""))
    assert b"".join(pieces) == data


# read_many.


def test_read_many_of_several_files(fs: FileSystem, root: str, content: Content) -> None:
    for name, size in (("a", 200_000), ("b", 10), ("c", 70_000)):
        fs.write_bytes(f"{root}/{name}", content(size))
    samples = [
        (f"{root}/a", 65_530, 20),
        (f"{root}/b", 4, 100),
        (f"{root}/c", 0, 70_000),
        (f"{root}/a", 0, 0),
        (f"{root}/b", 100, 5),
    ]
    got = [part.tobytes() for part in fs.read_many(samples)]
    assert got == [
        content(200_000)[65_530:65_550],
        content(10)[4:],
        content(70_000),
        b"",
        b"",
    ]
    assert fs.read_many([]) == []


def test_read_many_of_one_file_with_equal_lengths(
    fs: FileSystem, root: str, content: Content
) -> None:
    data = content(300_000)
    fs.write_bytes(f"{root}/f", data)
    offsets = np.random.default_rng(1).integers(0, 299_000, 500)
    into = np.empty((500, 1_000), np.uint8)
    got = fs.read_many(f"{root}/f", offsets, 1_000, into=into)
    assert got.shape == (500, 1_000)
    assert np.shares_memory(got, into)
    assert all(into[i].tobytes() == data[o : o + 1_000] for i, o in enumerate(offsets))
    with pytest.raises(InvalidArgument, match="sample 1 "):
        fs.read_many(f"{root}/f", [0, 299_500], 1_000)
    ragged = fs.read_many(f"{root}/f", [0, 299_500], [3, 1_000])
    assert [len(part) for part in ragged] == [3, 500]


def test_read_many_of_a_missing_file_names_it(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"x")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fs.read_many([(f"{root}/f", 0, 1), (f"{root}/nowhere", 0, 1)])


# Directories and names.


def test_listing(fs: FileSystem, root: str) -> None:
    for name in ("b", "a", "ä", "c.txt", ".hidden"):
        fs.write_bytes(f"{root}/{name}", name.encode())
    fs.mkdir(f"{root}/d")
    assert fs.listdir(root) == [".hidden", "a", "b", "c.txt", "d", "ä"]
    entries = {entry.name: entry for entry in fs.scandir(root)}
    assert entries["d"].is_dir()
    assert entries["ä"].stat().st_size == 2
    assert entries["a"].path == f"{root}/a"
    assert entries["a"].is_file()
    with pytest.raises(NotADirectoryError):
        fs.listdir(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.listdir(f"{root}/none")


def test_a_directory_with_more_entries_than_a_page(fs: FileSystem, root: str) -> None:
    names = [f"{i:05}" for i in range(fs.config.list_page * 2 + 7)]
    for name in names:
        fs.symlink("nowhere", f"{root}/{name}")
    assert fs.listdir(root) == names


def test_mkdir(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/a")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/a")
    fs.mkdir(f"{root}/a", exist_ok=True)
    with pytest.raises(FileNotFoundError):
        fs.mkdir(f"{root}/x/y")
    fs.mkdir(f"{root}/x/y/z", parents=True)
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/x/y/z", parents=True)
    fs.makedirs(f"{root}/x/y/z", exist_ok=True)
    fs.write_bytes(f"{root}/file", b"")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/file", exist_ok=True)
    with pytest.raises(NotADirectoryError):
        fs.mkdir(f"{root}/file/below")


def test_walk(fs: FileSystem, root: str) -> None:
    fs.makedirs(f"{root}/a/b")
    fs.write_bytes(f"{root}/a/f", b"")
    fs.symlink("a", f"{root}/link")
    assert list(fs.walk(root)) == [
        (root, ["a", "link"], []),
        (f"{root}/a", ["b"], ["f"]),
        (f"{root}/a/b", [], []),
    ]
    assert [top for top, _, _ in fs.walk(root, topdown=False)][-1] == root


def test_removal(fs: FileSystem, root: str) -> None:
    fs.makedirs(f"{root}/a/b")
    fs.write_bytes(f"{root}/a/f", b"x")
    with pytest.raises(NotEmpty):
        fs.rmdir(f"{root}/a")
    with pytest.raises(IsADirectoryError):
        fs.remove(f"{root}/a")
    with pytest.raises(NotADirectoryError):
        fs.rmdir(f"{root}/a/f")
    fs.remove(f"{root}/a/f")
    with pytest.raises(FileNotFoundError):
        fs.remove(f"{root}/a/f")
    fs.rmdir(f"{root}/a/b")
    fs.write_bytes(f"{root}/a/g", b"x")
    fs.remove_tree(f"{root}/a")
    assert not fs.exists(f"{root}/a")


def test_rename(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/a", b"a")
    fs.write_bytes(f"{root}/b", b"b")
    with pytest.raises(FileExistsError):
        fs.rename(f"{root}/a", f"{root}/b", replace=False)
    fs.rename(f"{root}/a", f"{root}/b")
    assert fs.listdir(root) == ["b"]
    assert fs.read_bytes(f"{root}/b") == b"a"
    fs.makedirs(f"{root}/d/e")
    with pytest.raises(InvalidArgument):
        fs.rename(f"{root}/d", f"{root}/d/e/d")
    with pytest.raises(FileNotFoundError, match="none"):
        fs.replace(f"{root}/none", f"{root}/x")
    fs.rename(f"{root}/d", f"{root}/moved")
    assert fs.is_dir(f"{root}/moved/e")


def test_links(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"data")
    fs.link(f"{root}/f", f"{root}/hard")
    assert fs.stat(f"{root}/hard").st_ino == fs.stat(f"{root}/f").st_ino
    assert fs.stat(f"{root}/f").st_nlink == 2
    fs.symlink("f", f"{root}/soft")
    assert fs.readlink(f"{root}/soft") == "f"
    assert fs.read_bytes(f"{root}/soft") == b"data"
    assert stat.S_ISLNK(fs.lstat(f"{root}/soft").st_mode)
    assert fs.is_symlink(f"{root}/soft")
    fs.remove(f"{root}/f")
    assert fs.read_bytes(f"{root}/hard") == b"data"
    assert not fs.exists(f"{root}/soft")
    with pytest.raises(InvalidArgument):
        fs.readlink(f"{root}/hard")
    fs.symlink("loop", f"{root}/loop")
    with pytest.raises(OSError, match="loop"):
        fs.stat(f"{root}/loop")


def test_an_unlinked_file_can_still_be_written_and_closed(fs: FileSystem, root: str) -> None:
    with fs.open(f"{root}/f", "w+b") as file:
        file.write(b"x" * 100_000)
        fs.remove(f"{root}/f")
        file.seek(0)
        assert file.read() == b"x" * 100_000
    assert not fs.exists(f"{root}/f")


# Attributes.


def test_attributes(fs: FileSystem, root: str) -> None:
    before = time.time()
    fs.write_bytes(f"{root}/f", b"x", permissions=0o600)
    attributes = fs.stat(f"{root}/f")
    assert stat.S_IMODE(attributes.st_mode) == 0o600
    assert stat.S_ISREG(attributes.st_mode)
    assert abs(attributes.st_mtime - before) < 60
    fs.chmod(f"{root}/f", 0o640)
    assert stat.S_IMODE(fs.stat(f"{root}/f").st_mode) == 0o640
    fs.utime(f"{root}/f", ns=(1, 2_000_000_003))
    assert fs.stat(f"{root}/f").st_mtime_ns == 2_000_000_003
    fs.utime(f"{root}/f", (1.0, 2.5))
    assert fs.stat(f"{root}/f").st_mtime_ns == 2_500_000_000
    owner = fs.stat(f"{root}/f")
    fs.chown(f"{root}/f", -1, owner.st_gid)
    assert fs.stat(f"{root}/f").st_uid == owner.st_uid


def test_stat_many_gives_errors_one_by_one(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"123")
    good, bad = fs.stat_many([f"{root}/f", f"{root}/none"])
    assert isinstance(good, os.stat_result)
    assert good.st_size == 3
    assert isinstance(bad, FileNotFoundError)


def test_space(fs: FileSystem) -> None:
    space = fs.statfs()
    assert 0 < space.free <= space.total


def test_layout_of_new_files_follows_the_directory(fs: FileSystem, root: str) -> None:
    fs.set_layout(root, chunk_size=128 * 1024, stripe=1)
    fs.write_bytes(f"{root}/f", b"x" * 300_000)
    layout = fs.layout(f"{root}/f")
    assert (layout.chunk_size, layout.stripe) == (128 * 1024, 1)
    assert fs.read_bytes(f"{root}/f") == b"x" * 300_000


def test_paths_are_spelled_in_several_ways(fs: FileSystem, root: str) -> None:
    fs.write_bytes(f"{root}/f", b"x")
    for spelled in (f"fs3://{root}/f", f"fs3:{root}/f", f"{root}/./f", f"/{root}/../{root}/f"):
        assert fs.read_bytes(spelled) == b"x", spelled
    with pytest.raises(InvalidArgument, match="names a cluster"):
        fs.stat("fs3://host:7000/f")
    with pytest.raises(InvalidArgument):
        fs.stat("/a\0b")


# The asyncio face.


async def test_asyncio_face(fs: FileSystem, root: str) -> None:
    aio = fs.aio
    await aio.makedirs(f"{root}/d", exist_ok=True)
    async with await aio.open(f"{root}/d/f", "w+b") as file:
        assert await file.write(b"hello") == 5
        await file.seek(1)
        assert await file.read() == b"ello"
    assert await aio.read_bytes(f"{root}/d/f") == b"hello"
    assert [entry.name async for entry in aio.scandir(f"{root}/d")] == ["f"]
    assert [top async for top, _, _ in aio.walk(root)] == [root, f"{root}/d"]
    (part,) = await aio.read_many([(f"{root}/d/f", 1, 3)])
    assert part.tobytes() == b"ell"
    with pytest.raises(FileNotFoundError):
        await aio.stat(f"{root}/none")
    with pytest.raises(ValueError, match="binary"):
        await aio.open(f"{root}/d/f", "r")
