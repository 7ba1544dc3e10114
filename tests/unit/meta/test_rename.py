"""rename: atomic, replacing, and never out of the tree."""

import errno
import os

import pytest

from fs3.errors import (
    AlreadyExists,
    Fs3Error,
    InvalidArgument,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
)
from fs3.ids import ROOT_INODE
from fs3.wire import keys
from fs3.wire.keys import GarbageKind
from fs3.wire.metadata import Rename
from tests.meta_world import ALICE, BOB, World


def test_a_file_moves(world: World) -> None:
    inode = world.create("f", length=3)
    world.mkdir("d")
    world.rename("f", "d/g")
    moved = world.stat("d/g")
    assert (moved.id, moved.length, moved.ctime_ns) == (inode.id, 3, world.now_ns - 1_000_000_000)
    assert world.names("/") == ["d"]
    assert world.stat("/").mtime_ns == world.stat("d").mtime_ns == moved.ctime_ns


def test_a_directory_moves_with_its_parent_and_links(world: World) -> None:
    for path in ("a", "b", "a/x", "a/x/y"):
        world.mkdir(path)
    world.rename("a/x", "b/x")
    assert (world.stat("a").nlink, world.stat("b").nlink) == (2, 3)
    assert world.stat("b/x/y/../..").id == world.stat("b").id
    world.rename("b/x", "b/z")
    assert (world.stat("b").nlink, world.names("b")) == (3, ["z"])


def test_a_file_replaces_a_file(world: World) -> None:
    new = world.create("new", length=1)
    old = world.create("old", length=2)
    world.rename("new", "old")
    assert world.stat("old").id == new.id
    assert world.names("/") == ["old"]
    assert world.find(old.id) is None
    [(key, _)] = world.pairs(*keys.garbage_due(GarbageKind.FILE, 0, world.now_ns))
    assert keys.parse_garbage(key).inode == old.id


def test_a_directory_replaces_an_empty_one(world: World) -> None:
    for path in ("a", "a/x", "b"):
        world.mkdir(path)
    old = world.stat("b")
    world.rename("a/x", "b")
    assert world.find(old.id) is None
    assert (world.stat("/").nlink, world.stat("a").nlink) == (4, 2)
    assert world.stat("b/..").id == ROOT_INODE


def test_two_names_of_one_file_stay(world: World) -> None:
    world.create("f")
    world.link("f", "g")
    world.rename("f", "g")
    world.rename("f", "f")
    assert world.names("/") == ["f", "g"]
    assert world.stat("f").nlink == 2


def test_a_replaced_file_with_other_names_or_writers_lives(world: World) -> None:
    kept = world.create("kept")
    world.link("kept", "also")
    world.create("f")
    world.rename("f", "kept")
    assert world.stat("also") == world.find(kept.id)
    opened = world.open("also", os.O_WRONLY)
    world.create("g")
    world.rename("g", "also")
    inode = world.find(kept.id)
    assert inode is not None
    assert inode.nlink == 0
    world.close(opened)
    assert world.find(kept.id) is None


@pytest.mark.parametrize(
    ("path", "new", "kind", "number"),
    [
        ("missing", "n", NotFound, errno.ENOENT),
        ("f", "missing/n", NotFound, errno.ENOENT),
        ("f", "f2/n", NotADirectory, errno.ENOTDIR),
        ("f/", "n", NotADirectory, errno.ENOTDIR),
        ("f", "n/", NotADirectory, errno.ENOTDIR),
        ("f", "d", IsADirectory, errno.EISDIR),
        ("d", "f", NotADirectory, errno.ENOTDIR),
        ("d", "full", NotEmpty, errno.ENOTEMPTY),
        ("full/sub", "full", NotEmpty, errno.ENOTEMPTY),
        ("full/sub/deep", "full", NotEmpty, errno.ENOTEMPTY),
        ("full", "full/sub", InvalidArgument, errno.EINVAL),
        ("full", "full/sub/new", InvalidArgument, errno.EINVAL),
        ("full", "full/new", InvalidArgument, errno.EINVAL),
        ("/", "n", InvalidArgument, errno.EBUSY),
        ("d/.", "n", InvalidArgument, errno.EBUSY),
        ("d/..", "n", InvalidArgument, errno.EBUSY),
        ("d", "/", InvalidArgument, errno.EBUSY),
        ("d", "full/..", InvalidArgument, errno.EBUSY),
    ],
)
def test_refusals_change_nothing(
    world: World, path: str, new: str, kind: type[Fs3Error], number: int
) -> None:
    world.create("f")
    world.create("f2")
    for directory in ("d", "full", "full/sub", "full/sub/deep"):
        world.mkdir(directory)
    before = world.pairs(b"INOD", b"INOE"), world.pairs(b"DENT", b"DENU")
    with pytest.raises(kind) as caught:
        world.rename(path, new)
    assert caught.value.errno == number
    assert before == (world.pairs(b"INOD", b"INOE"), world.pairs(b"DENT", b"DENU"))


def test_noreplace(world: World) -> None:
    world.create("f")
    world.create("g")
    with pytest.raises(AlreadyExists):
        world.rename("f", "g", flags=1)
    world.rename("f", "h", flags=1)
    with pytest.raises(InvalidArgument, match="flags"):
        world.rename("g", "x", flags=2)


def test_permissions_on_both_directories(world: World) -> None:
    world.mkdir("mine", ALICE)
    world.mkdir("theirs", BOB)
    world.create("mine/f", ALICE)
    world.create("theirs/g", BOB)
    for path, new in (("mine/f", "theirs/f"), ("theirs/g", "mine/g")):
        with pytest.raises(PermissionDenied) as caught:
            world.rename(path, new, ALICE)
        assert caught.value.errno == errno.EACCES
    world.rename("mine/f", "mine/h", ALICE)


def test_sticky_directories_protect_what_belongs_to_others(world: World) -> None:
    world.mkdir("tmp")
    world.chmod("tmp", 0o1777)
    world.create("tmp/alices", ALICE)
    world.create("tmp/bobs", BOB)
    for path, new in (("tmp/alices", "tmp/x"), ("tmp/bobs", "tmp/alices")):
        with pytest.raises(PermissionDenied) as caught:
            world.rename(path, new, BOB)
        assert caught.value.errno == errno.EPERM
    world.rename("tmp/bobs", "tmp/mine", BOB)
    world.chown("tmp", BOB)
    world.rename("tmp/alices", "tmp/taken", BOB)


def test_a_directory_changes_parent_only_with_write_permission_on_itself(world: World) -> None:
    world.mkdir("a", ALICE, mode=0o777)
    world.mkdir("b", ALICE, mode=0o777)
    world.mkdir("a/d", ALICE, mode=0o755)
    with pytest.raises(PermissionDenied):
        world.rename("a/d", "b/d", BOB)
    world.rename("a/d", "a/e", BOB)


def test_into_a_directory_that_was_removed(world: World) -> None:
    world.mkdir("a")
    gone = world.mkdir("a/d")
    world.create("a/d/x")
    world.create("f")
    world.remove("a/d", recursive=True)
    with pytest.raises(NotFound):
        world.call(Rename(ROOT_INODE, "f", gone.id, "f"))
    assert world.names("/") == ["a", "f"]
