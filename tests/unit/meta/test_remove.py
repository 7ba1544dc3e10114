"""remove: unlink, rmdir, whole trees, and files that are still written to."""

import errno
import os
from typing import Any

import pytest

from fs3.errors import (
    Fs3Error,
    InvalidArgument,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
)
from fs3.ids import ROOT_INODE
from fs3.model.inode import Kind
from fs3.wire import keys, records
from fs3.wire.keys import GarbageKey, GarbageKind
from fs3.wire.metadata import Open, Stat
from tests.meta_world import ALICE, BOB, World


def garbage(world: World, kind: GarbageKind) -> list[GarbageKey]:
    pairs = world.pairs(*keys.garbage_due(kind, 0, world.now_ns))
    return [keys.parse_garbage(key) for key, _ in pairs]


def test_unlink(world: World) -> None:
    inode = world.create("f", length=9)
    world.remove("f", kind=Kind.FILE)
    assert world.names("/") == []
    assert world.find(inode.id) is None
    [(key, value)] = world.pairs(*keys.garbage_due(GarbageKind.FILE, 0, world.now_ns))
    record = records.GARBAGE.decode(value)
    assert (keys.parse_garbage(key).inode, record.layout, record.length) == (
        inode.id,
        inode.layout,
        9,
    )


def test_chunks_stay_for_readers_for_the_delay(world: World) -> None:
    world.garbage_delay_ns = 10**9 * 60
    world.create("f")
    world.remove("f")
    assert garbage(world, GarbageKind.FILE) == []
    world.now_ns += 10**9 * 60
    assert len(garbage(world, GarbageKind.FILE)) == 1


def test_a_link_goes_without_garbage(world: World) -> None:
    world.symlink("link", "x")
    world.remove("link")
    assert garbage(world, GarbageKind.FILE) == []
    assert world.names("/") == []


def test_unlink_of_one_of_two_names(world: World) -> None:
    world.create("f")
    world.link("f", "g")
    world.remove("g")
    left = world.stat("f")
    assert (left.nlink, left.ctime_ns) == (1, world.now_ns - 10**9)
    assert garbage(world, GarbageKind.FILE) == []


def test_a_file_lives_until_its_last_writer_closes(world: World) -> None:
    one = world.open("f", os.O_CREAT | os.O_WRONLY)
    two = world.open("f", os.O_WRONLY, client=2)
    world.remove("f")
    assert world.call(Stat(one.inode.id, "")).nlink == 0
    world.close(one, length=10)
    assert garbage(world, GarbageKind.FILE) == []
    world.close(two, length=30, client=2)
    assert world.find(one.inode.id) is None
    [key] = garbage(world, GarbageKind.FILE)
    assert key.inode == one.inode.id


def test_rmdir(world: World) -> None:
    inode = world.mkdir("d")
    world.remove("d/", kind=Kind.DIRECTORY)
    assert world.find(inode.id) is None
    assert world.stat("/").nlink == 2
    with pytest.raises(NotFound):
        world.call(Open(inode.id, "f", os.O_CREAT | os.O_WRONLY))


@pytest.mark.parametrize(
    ("path", "options", "kind", "number"),
    [
        ("missing", {}, NotFound, errno.ENOENT),
        ("d", {"kind": Kind.FILE}, IsADirectory, errno.EISDIR),
        ("f", {"kind": Kind.DIRECTORY}, NotADirectory, errno.ENOTDIR),
        ("f/", {}, NotADirectory, errno.ENOTDIR),
        ("d", {"kind": Kind.DIRECTORY}, NotEmpty, errno.ENOTEMPTY),
        ("d", {}, NotEmpty, errno.ENOTEMPTY),
        ("/", {"recursive": True}, InvalidArgument, errno.EBUSY),
        ("d/.", {"recursive": True}, InvalidArgument, errno.EINVAL),
        ("d/sub/..", {"recursive": True}, NotEmpty, errno.ENOTEMPTY),
    ],
)
def test_refusals(
    world: World, path: str, options: dict[str, Any], kind: type[Fs3Error], number: int
) -> None:
    world.create("f")
    world.mkdir("d")
    world.mkdir("d/sub")
    with pytest.raises(kind) as caught:
        world.remove(path, **options)
    assert caught.value.errno == number
    assert world.names("/") == ["d", "f"]
    assert world.names("d") == ["sub"]


def test_a_link_to_a_directory_is_no_directory(world: World) -> None:
    world.mkdir("d")
    world.symlink("link", "d")
    with pytest.raises(NotADirectory):
        world.remove("link", kind=Kind.DIRECTORY)
    world.remove("link", recursive=True)
    assert world.names("/") == ["d"]


def test_permissions(world: World) -> None:
    world.mkdir("d", ALICE)
    world.create("d/f", ALICE)
    with pytest.raises(PermissionDenied) as caught:
        world.remove("d/f", BOB)
    assert caught.value.errno == errno.EACCES
    world.chmod("d", 0o1777)
    with pytest.raises(PermissionDenied) as caught:
        world.remove("d/f", BOB)
    assert caught.value.errno == errno.EPERM
    world.create("d/bobs", BOB)
    world.remove("d/bobs", ALICE)
    world.chmod("d", 0o777)
    world.remove("d/f", BOB)


def plant(world: World) -> None:
    for path in ("top", "top/a", "top/a/b", "top/empty"):
        world.mkdir(path, ALICE)
    for path in ("top/f", "top/a/g", "top/a/b/h"):
        world.create(path, ALICE)


def test_a_tree_goes_in_one_step(world: World) -> None:
    plant(world)
    top = world.stat("top")
    world.remove("top", ALICE, recursive=True)
    assert world.names("/") == []
    assert world.stat("/").nlink == 2
    [key] = garbage(world, GarbageKind.SUBTREE)
    assert key.inode == top.id
    detached = world.find(top.id)
    assert detached is not None
    assert detached.nlink == 0
    with pytest.raises(NotFound):
        world.call(Open(top.id, "late", os.O_CREAT | os.O_WRONLY))


def test_root_removes_a_tree_without_looking(world: World) -> None:
    plant(world)
    world.entries_checked_max = 0
    world.remove("top", recursive=True)
    assert world.names("/") == []


@pytest.mark.parametrize("mode", [0o555, 0o666, 0o333])
def test_one_closed_directory_below_keeps_the_whole_tree(world: World, mode: int) -> None:
    plant(world)
    world.chmod("top/a/b", mode)
    with pytest.raises(PermissionDenied) as caught:
        world.remove("top", ALICE, recursive=True)
    assert caught.value.errno == errno.EACCES
    assert world.stat("top/a/b/h").nlink == 1
    assert garbage(world, GarbageKind.SUBTREE) == []


def test_a_closed_empty_directory_below_is_no_hindrance(world: World) -> None:
    plant(world)
    world.chmod("top/empty", 0)
    world.chown("top/empty", BOB)
    world.remove("top", ALICE, recursive=True)


def test_a_sticky_directory_below_protects_others(world: World) -> None:
    plant(world)
    world.chmod("top/a", 0o1777)
    world.chown("top/a", BOB)
    world.create("top/a/bobs", BOB)
    with pytest.raises(PermissionDenied) as caught:
        world.remove("top", ALICE, recursive=True)
    assert caught.value.errno == errno.EPERM
    world.chown("top/a", ALICE)
    world.remove("top", ALICE, recursive=True)


def test_a_tree_too_large_to_check(world: World) -> None:
    plant(world)
    world.entries_checked_max = 5
    with pytest.raises(NotEmpty, match="too large to check"):
        world.remove("top", ALICE, recursive=True)
    world.entries_checked_max = 6
    world.remove("top", ALICE, recursive=True)


def test_recursive_of_an_empty_directory_and_of_a_file(world: World) -> None:
    world.mkdir("d")
    world.create("f")
    world.remove("d", recursive=True)
    world.remove("f", recursive=True)
    assert world.names("/") == []
    assert garbage(world, GarbageKind.SUBTREE) == []
    assert world.stat("/").id == ROOT_INODE
