import os

import numpy as np
import pytest

from tests.unit.trainer_io.conftest import Place
from trainer_io.dataset.source import find_files, fingerprint, read_ranges


def test_files_are_found_below_in_byte_order(place: Place) -> None:
    for name in ("b.txt", "a/z.txt", "a/ä.txt", "a.txt", "a/b/c.txt", "other.bin"):
        place.write(name, name.encode())
    entries = find_files(place.source, place.root, "*.txt")
    names = [entry.name for entry in entries]
    assert names == sorted(names, key=os.fsencode)
    assert set(names) == {"b.txt", "a/z.txt", "a/ä.txt", "a.txt", "a/b/c.txt"}
    assert [entry.size_bytes for entry in entries] == [len(name.encode()) for name in names]


def test_a_single_file_is_found_by_its_own_path(place: Place) -> None:
    place.write("one.txt", b"1234")
    (entry,) = find_files(place.source, f"{place.root}/one.txt", "*")
    assert (entry.name, entry.size_bytes) == ("one.txt", 4)


@pytest.mark.parametrize("path", ["", "/missing"])
def test_nothing_found_is_an_error_that_names_the_path(place: Place, path: str) -> None:
    place.write("one.txt", b"1")
    with pytest.raises(FileNotFoundError):
        find_files(place.source, place.root + path, "*.parquet")


def test_ranges_of_many_files_come_in_one_buffer(place: Place) -> None:
    generator = np.random.default_rng(1)
    contents = {f"{place.root}/f{i}": generator.bytes(5000) for i in range(20)}
    for path, content in contents.items():
        place.write(os.path.basename(path), content)
    wanted = [
        (path, int(offset), int(generator.integers(0, 1000)))
        for path in contents
        for offset in generator.integers(0, 4000, 5)
    ]
    got = read_ranges(place.source, wanted)
    assert [part.tobytes() for part in got] == [contents[p][o : o + n] for p, o, n in wanted]
    assert len({id(part.base) for part in got}) == 1


def test_a_file_that_became_shorter_is_an_error(place: Place) -> None:
    place.write("f", b"x" * 10)
    with pytest.raises(OSError, match="shorter"):
        read_ranges(place.source, [(f"{place.root}/f", 5, 10)])


def test_the_fingerprint_follows_names_and_sizes_not_the_place(place: Place) -> None:
    place.write("a/one", b"1")
    place.write("b/one", b"2")
    place.write("c/one", b"33")
    prints = [
        fingerprint(find_files(place.source, f"{place.root}/{below}", "*")) for below in "abc"
    ]
    assert prints[0] == prints[1] != prints[2]
