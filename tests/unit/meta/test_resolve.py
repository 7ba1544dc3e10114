"""Paths: components, links, `..`, limits, and search permission on the way."""

import errno

import pytest

from fs3.errors import (
    Fs3Error,
    InvalidArgument,
    NotADirectory,
    NotFound,
    PermissionDenied,
)
from fs3.ids import ROOT_INODE, InodeId
from fs3.wire.metadata import Stat
from tests.meta_world import ALICE, World


@pytest.fixture
def world(world: World) -> World:
    world.mkdir("a")
    world.mkdir("a/b")
    world.create("a/b/file", length=3)
    return world


@pytest.mark.parametrize(
    "path",
    [
        "a/b/file",
        "/a/b/file",
        "//a///b/file",
        "./a/./b/file",
        "a/../a/b/../b/file",
        "../../a/b/file",
    ],
)
def test_many_spellings_of_one_path(world: World, path: str) -> None:
    assert world.stat(path).length == 3


@pytest.mark.parametrize("path", ["", "/", ".", "..", "a/..", "./", "a/b/../.."])
def test_spellings_of_the_root(world: World, path: str) -> None:
    assert world.stat(path).id == ROOT_INODE


def test_a_path_begins_at_its_base_unless_absolute(world: World) -> None:
    a = world.stat("a").id
    assert world.call(Stat(a, "b/file")).length == 3
    assert world.call(Stat(a, "/a/b/file")).length == 3
    assert world.call(Stat(a, "../a/b/file")).length == 3
    file = world.stat("a/b/file").id
    assert world.call(Stat(file, "")).length == 3


@pytest.mark.parametrize(
    ("path", "kind", "number"),
    [
        ("missing", NotFound, errno.ENOENT),
        ("a/missing/x", NotFound, errno.ENOENT),
        ("a/missing/..", NotFound, errno.ENOENT),
        ("a/b/file/x", NotADirectory, errno.ENOTDIR),
        ("a/b/file/", NotADirectory, errno.ENOTDIR),
        ("a/b/file/..", NotADirectory, errno.ENOTDIR),
        ("a/" + "n" * 256, InvalidArgument, errno.ENAMETOOLONG),
        ("a/" + "é" * 128, InvalidArgument, errno.ENAMETOOLONG),
        ("a/" * 2049, InvalidArgument, errno.ENAMETOOLONG),
        ("a\0b", InvalidArgument, errno.EINVAL),
    ],
)
def test_paths_that_lead_nowhere(
    world: World, path: str, kind: type[Fs3Error], number: int
) -> None:
    with pytest.raises(kind) as caught:
        world.stat(path)
    assert caught.value.errno == number


def test_limits_themselves_are_allowed(world: World) -> None:
    name = "é" * 127 + "n"
    assert len(name.encode()) == 255
    world.create(name)
    assert world.stat(name).length == 0
    assert world.stat("./" * 2047 + "a").id == world.stat("a").id


def test_a_base_that_is_gone(world: World) -> None:
    with pytest.raises(NotFound, match="inode 4711 does not exist"):
        world.call(Stat(InodeId(4711), "x"))


def test_links_are_followed_inside_and_at_the_end_if_asked(world: World) -> None:
    world.symlink("to-b", "a/b")
    world.symlink("a/to-file", "b/file")
    world.symlink("a/absolute", "/a/b/file")
    world.symlink("a/up", "../a/b")
    assert world.stat("to-b/file").length == 3
    assert world.stat("a/to-file", follow=True).length == 3
    assert world.stat("a/absolute", follow=True).length == 3
    assert world.stat("a/up/file").length == 3
    assert world.stat("a/to-file").target == "b/file"
    assert world.stat("to-b/").target == "", "a slash asks for what the link names"
    assert world.stat("to-b/..").id == world.stat("a").id, "`..` of the target, not of the text"


def test_a_slash_after_a_link_to_a_file(world: World) -> None:
    world.symlink("link", "a/b/file")
    with pytest.raises(NotADirectory):
        world.stat("link/")
    world.symlink("slashed", "a/b/file/")
    with pytest.raises(NotADirectory):
        world.stat("slashed", follow=True)


def test_dangling_and_looping_links(world: World) -> None:
    world.symlink("dangling", "a/nothing")
    world.symlink("loop", "loop")
    world.symlink("ping", "pong")
    world.symlink("pong", "ping")
    with pytest.raises(NotFound):
        world.stat("dangling", follow=True)
    for path in ("loop", "ping"):
        with pytest.raises(InvalidArgument) as caught:
            world.stat(path, follow=True)
        assert caught.value.errno == errno.ELOOP
        assert world.stat(path).target


def test_forty_links_are_allowed_and_no_more(world: World) -> None:
    world.symlink("l1", "a/b/file")
    for n in range(2, 42):
        world.symlink(f"l{n}", f"l{n - 1}")
    assert world.stat("l40", follow=True).length == 3
    with pytest.raises(InvalidArgument) as caught:
        world.stat("l41", follow=True)
    assert caught.value.errno == errno.ELOOP


def test_every_directory_on_the_way_must_be_searchable(world: World) -> None:
    world.chmod("a", 0o744)
    with pytest.raises(PermissionDenied) as caught:
        world.stat("a/b", ALICE)
    assert caught.value.errno == errno.EACCES
    world.chmod("a", 0o711)
    assert world.stat("a/b/file", ALICE).length == 3
    world.chmod("a/b", 0o700)
    with pytest.raises(PermissionDenied):
        world.stat("a/b/file", ALICE)
    assert world.stat("a/b/file").length == 3, "root may pass"
