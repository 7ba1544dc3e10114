"""One suite for local files and for fsspec file systems."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from smallpond.io import files
from smallpond.io.files import Files, LocalFiles, RemoteFiles

Place = tuple[Files, str]


@pytest.fixture(params=["local", "memory", "fsspec over local files"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield LocalFiles(), str(tmp_path)
    elif request.param == "memory":
        root = f"memory://{uuid.uuid4().hex}"
        yield RemoteFiles("memory://"), root
        fsspec.filesystem("memory").rm(root, recursive=True)
    else:
        yield RemoteFiles("local://"), f"local://{tmp_path}"


def put(place: Files, path: str, data: bytes) -> None:
    place.make_directory(files.parent_and_name(path)[0])
    with place.open_output(path) as file:
        file.write(data)


def get(place: Files, path: str) -> bytes:
    with place.open_input(path) as file:
        return bytes(file.read())


def names(paths: list[str], root: str) -> list[str]:
    last = files.parent_and_name(root)[1]
    return [path.rpartition(f"{last}/")[2] for path in paths]


def test_what_is_written_is_read(place: Place) -> None:
    store, root = place
    put(store, f"{root}/a", b"hello")
    put(store, f"{root}/empty", b"")
    assert get(store, f"{root}/a") == b"hello"
    assert get(store, f"{root}/empty") == b""
    assert store.size_bytes(f"{root}/a") == 5
    assert store.exists(f"{root}/a")
    assert not store.exists(f"{root}/b")
    assert store.is_directory(root)
    assert not store.is_directory(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        store.open_input(f"{root}/missing").read()


def test_find_takes_files_directories_and_globs_and_hides_hidden(place: Place) -> None:
    store, root = place
    for name in ("b.x", "a.x", "c.y", "sub/d.x", ".hidden.x", "_part/e.x", "sub/.h/f.x"):
        put(store, f"{root}/{name}", b"1")

    def find(pattern: str, recursive: bool = False) -> list[str]:
        return names(store.find(f"{root}/{pattern}".rstrip("/"), recursive), root)

    assert find("") == ["a.x", "b.x", "c.y"]
    assert find("", recursive=True) == ["a.x", "b.x", "c.y", "sub/d.x"]
    assert find("*.x") == ["a.x", "b.x"]
    assert find("[ab].x") == ["a.x", "b.x"]
    assert find("**/*.x", recursive=True) == ["a.x", "b.x", "sub/d.x"]
    assert find("a.x") == ["a.x"]
    assert find("_part/*.x") == ["_part/e.x"]
    assert find("nothing*") == []
    assert find("nothing") == []


def test_found_paths_are_complete(place: Place) -> None:
    store, root = place
    put(store, f"{root}/a", b"1")
    (found,) = store.find(root, recursive=False)
    assert files.is_remote(found) == files.is_remote(root)
    assert get(store, found) == b"1"


def test_rename_replaces_files_and_empty_directories(place: Place) -> None:
    store, root = place
    put(store, f"{root}/a", b"new")
    put(store, f"{root}/b", b"old")
    store.rename(f"{root}/a", f"{root}/b")
    assert get(store, f"{root}/b") == b"new"
    assert not store.exists(f"{root}/a")
    put(store, f"{root}/from/x", b"1")
    store.make_directory(f"{root}/to")
    store.rename(f"{root}/from", f"{root}/to")
    assert store.list_names(f"{root}/to") == ["x"]
    assert store.list_names(f"{root}/from") == []


def test_exchange_swaps_or_says_it_cannot(place: Place) -> None:
    store, root = place
    put(store, f"{root}/one/x", b"1")
    put(store, f"{root}/other/y", b"2")
    exchanged = store.exchange_directories(f"{root}/one", f"{root}/other")
    expected = (["y"], ["x"]) if exchanged else (["x"], ["y"])
    assert (store.list_names(f"{root}/one"), store.list_names(f"{root}/other")) == expected


def test_remove_tree_takes_anything_and_nothing(place: Place) -> None:
    store, root = place
    put(store, f"{root}/d/e/f", b"1")
    store.remove_tree(f"{root}/d")
    assert not store.exists(f"{root}/d/e/f")
    store.remove_tree(f"{root}/d")
    put(store, f"{root}/g", b"1")
    store.remove_tree(f"{root}/g")
    assert store.list_names(f"{root}/missing") == []


def test_an_authority_with_a_port_is_another_place() -> None:
    assert files.files_for("fs3://a/b") is files.files_for("fs3:///c")
    assert files.files_for("fs3://host:7000/a") is not files.files_for("fs3:///a")
    assert files.files_for("/a") is files.files_for("b")


@pytest.mark.parametrize(
    ("path", "parent", "name"),
    [
        ("/a/b", "/a", "b"),
        ("/a/", "/", "a"),
        ("fs3://a/b", "fs3://a", "b"),
        ("fs3://a", "fs3://", "a"),
        ("fs3:///a", "fs3:///", "a"),
    ],
)
def test_parents(path: str, parent: str, name: str) -> None:
    assert files.parent_and_name(path) == (parent, name)
    assert files.join(parent, name) == path.rstrip("/")
