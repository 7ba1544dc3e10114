"""set_attributes, set_layout and statfs."""

import errno

import pytest

from fs3.errors import InvalidArgument, NotADirectory, NotFound, PermissionDenied
from fs3.ids import ROOT_INODE
from fs3.units import KIB, MIB
from fs3.wire.metadata import NOW, SetAttributes, SetLayout, StatFs
from tests.meta_world import ALICE, BOB, World


def change(path: str, **changes: object) -> SetAttributes:
    return SetAttributes(ROOT_INODE, path, **changes)  # type: ignore[arg-type]


def test_chmod(world: World) -> None:
    world.create("f", ALICE)
    inode = world.chmod("f", 0o107777, ALICE)
    assert inode.mode == 0o7777, "only permission bits are stored"
    assert inode.ctime_ns == world.now_ns
    assert inode.mtime_ns < world.now_ns
    with pytest.raises(PermissionDenied) as caught:
        world.chmod("f", 0o777, BOB)
    assert caught.value.errno == errno.EPERM


def test_setgid_needs_membership(world: World) -> None:
    world.create("f", ALICE)
    world.chown("f", (ALICE[0], 500))
    assert world.chmod("f", 0o2755, ALICE).mode == 0o755
    assert world.call(change("f", mode=0o2755), ALICE, groups=(500,)).mode == 0o2755
    assert world.chmod("f", 0o2755).mode == 0o2755


def test_chown(world: World) -> None:
    world.create("f", ALICE)
    world.chmod("f", 0o6755)
    inode = world.chown("f", BOB)
    assert (inode.uid, inode.gid, inode.mode) == (*BOB, 0o755)
    for changes in ({"uid": ALICE[0]}, {"gid": 500}):
        with pytest.raises(PermissionDenied) as caught:
            world.call(change("f", **changes), BOB)
        assert caught.value.errno == errno.EPERM
    assert world.call(change("f", gid=500), BOB, groups=(500,)).gid == 500
    assert world.call(change("f", uid=BOB[0]), BOB).uid == BOB[0]
    with pytest.raises(PermissionDenied):
        world.call(change("f", uid=BOB[0]), ALICE)


def test_chown_keeps_the_bits_of_directories(world: World) -> None:
    world.mkdir("d")
    world.chmod("d", 0o6755)
    assert world.chown("d", ALICE).mode == 0o6755


def test_chown_and_chmod_together(world: World) -> None:
    world.create("f")
    inode = world.call(change("f", uid=1, gid=2, mode=0o4700))
    assert (inode.uid, inode.gid, inode.mode) == (1, 2, 0o4700)


def test_times(world: World) -> None:
    world.create("f", ALICE)
    inode = world.call(change("f", atime_ns=1, mtime_ns=2), ALICE)
    assert (inode.atime_ns, inode.mtime_ns, inode.ctime_ns) == (1, 2, world.now_ns)
    inode = world.call(change("f", mtime_ns=NOW), ALICE)
    assert (inode.atime_ns, inode.mtime_ns) == (1, world.now_ns)


def test_explicit_times_need_ownership_and_now_needs_write_permission(world: World) -> None:
    world.create("f", ALICE)
    world.chmod("f", 0o602)
    with pytest.raises(PermissionDenied) as caught:
        world.call(change("f", atime_ns=1, mtime_ns=NOW), BOB)
    assert caught.value.errno == errno.EPERM
    world.call(change("f", atime_ns=NOW, mtime_ns=NOW), BOB)
    world.chmod("f", 0o604)
    with pytest.raises(PermissionDenied) as caught:
        world.call(change("f", atime_ns=NOW), BOB)
    assert caught.value.errno == errno.EACCES


def test_links_are_followed_only_if_asked(world: World) -> None:
    world.create("f")
    world.symlink("link", "f")
    world.call(change("link", mtime_ns=5))
    world.call(change("link", mtime_ns=6, follow=False))
    assert (world.stat("f").mtime_ns, world.stat("link").mtime_ns) == (5, 6)


def test_nothing_to_change(world: World) -> None:
    before = world.create("f", ALICE)
    assert world.call(change("f"), BOB) == before
    with pytest.raises(NotFound):
        world.call(change("missing", mode=1))


def test_all_or_nothing(world: World) -> None:
    before = world.create("f", ALICE)
    with pytest.raises(PermissionDenied):
        world.call(change("f", mode=0o700, uid=BOB[0]), ALICE)
    assert world.stat("f") == before


def test_set_layout_is_for_future_children(world: World) -> None:
    old = world.create("old")
    world.call(SetLayout(ROOT_INODE, "/", chunk_size=128 * KIB))
    changed = world.call(SetLayout(ROOT_INODE, "/", stripe=2))
    assert (changed.layout.chunk_size, changed.layout.stripe) == (128 * KIB, 2)
    world.mkdir("d")
    new = world.create("d/new").layout
    assert new is not None
    assert (new.chunk_size, new.stripe) == (128 * KIB, 2)
    assert world.stat("old") == old
    assert old.layout is not None
    assert old.layout.chunk_size == MIB


def test_set_layout_refusals(world: World) -> None:
    world.create("f")
    world.mkdir("d", ALICE)
    with pytest.raises(NotADirectory):
        world.call(SetLayout(ROOT_INODE, "f", stripe=1))
    with pytest.raises(PermissionDenied):
        world.call(SetLayout(ROOT_INODE, "d", stripe=1), BOB)
    for wrong in ({"chunk_size": 100_000}, {"chunk_size": 128 * MIB}, {"stripe": 0}):
        with pytest.raises(InvalidArgument):
            world.call(SetLayout(ROOT_INODE, "d", **wrong), ALICE)
    assert world.call(SetLayout(ROOT_INODE, "d", stripe=3), ALICE).layout.stripe == 3


def test_statfs_counts(world: World) -> None:
    world.create("f")
    world.mkdir("d")
    world.symlink("d/link", "x")
    full = world.call(StatFs())
    assert (full.capacity_bytes, full.used_bytes, full.free_bytes) == (1000, 400, 600)
    assert full.inodes == 4
    world.remove("f")
    assert world.call(StatFs()).inodes == 3
