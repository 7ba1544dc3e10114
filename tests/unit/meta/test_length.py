"""Length: published by writers, merged by maximum, cut only by truncation."""

import errno
import os
from typing import Any

import pytest

from fs3.errors import (
    Busy,
    InvalidArgument,
    IsADirectory,
    NotFound,
    PermissionDenied,
    StaleHandle,
)
from fs3.ids import ROOT_INODE
from fs3.model.inode import Inode
from fs3.units import MIB
from fs3.wire import keys, records
from fs3.wire.keys import GarbageKey, GarbageKind
from fs3.wire.metadata import Close, Opened, Sync, Truncate
from fs3.wire.records import GarbageRecord
from tests.meta_world import ALICE, BOB, SECOND, World

WRITE = os.O_CREAT | os.O_WRONLY


def publish(
    world: World, opened: Opened, length: int | None, *, version: int = 0, mtime: int | None = None
) -> Inode:
    inode: Inode = world.call(Sync(opened.inode.id, opened.session, length, version, mtime))
    return inode


def truncate(world: World, path: str, length: int, **options: Any) -> Inode:
    inode: Inode = world.call(Truncate(ROOT_INODE, path, length), **options)
    return inode


def cuts(world: World) -> list[tuple[GarbageKey, GarbageRecord]]:
    pairs = world.pairs(*keys.garbage_due(GarbageKind.CUT, 0, world.now_ns))
    return [(keys.parse_garbage(key), records.GARBAGE.decode(value)) for key, value in pairs]


def test_lengths_of_writers_are_merged_by_maximum(world: World) -> None:
    one = world.open("f", WRITE)
    two = world.open("f", WRITE)
    assert publish(world, one, 100).length == 100
    assert publish(world, two, 50).length == 100
    assert publish(world, two, None).length == 100
    assert world.close(two, length=300).length == 300
    assert world.close(one, length=200).length == 300


def test_a_write_time_counts_when_it_is_later(world: World) -> None:
    opened = world.open("f", WRITE)
    written = world.now_ns + SECOND // 2
    inode = publish(world, opened, 1, mtime=written)
    assert (inode.mtime_ns, inode.ctime_ns) == (written, written)
    assert publish(world, opened, 1, mtime=written - 1).mtime_ns == written
    ahead = publish(world, opened, 1, mtime=world.now_ns + 100 * SECOND)
    assert ahead.mtime_ns == world.now_ns, "a clock that is ahead does not write the future"


def test_truncate_cuts_and_raises_the_version(world: World) -> None:
    world.create("f", length=5 * MIB)
    inode = truncate(world, "f", 100)
    assert (inode.length, inode.truncate_version, inode.pending_cut) == (100, 1, 100)
    assert inode.mtime_ns == inode.ctime_ns == world.now_ns
    [(key, record)] = cuts(world)
    assert (key.inode, key.version, record.length) == (inode.id, 1, 100)
    assert record.layout == inode.layout


def test_extending_a_closed_file_needs_no_cut(world: World) -> None:
    world.create("f", length=10)
    inode = truncate(world, "f", 1000)
    assert (inode.length, inode.truncate_version, inode.pending_cut) == (1000, 0, None)
    assert truncate(world, "f", 1000).truncate_version == 0
    assert cuts(world) == []


def test_bytes_that_another_writer_has_not_published_are_cut(world: World) -> None:
    world.create("f", length=10)
    world.open("f", os.O_WRONLY, client=2)
    inode = truncate(world, "f", 1000)
    assert (inode.length, inode.truncate_version, inode.pending_cut) == (1000, 1, 1000)


def test_a_client_extends_its_own_open_file_without_a_cut(world: World) -> None:
    opened = world.open("f", WRITE)
    publish(world, opened, 10)
    assert truncate(world, "f", 1000).truncate_version == 0
    assert truncate(world, "f", 1000).truncate_version == 1, "it may hold bytes beyond its length"


def test_writers_of_an_older_version_cannot_undo_a_cut(world: World) -> None:
    opened = world.open("f", WRITE)
    publish(world, opened, 500)
    truncate(world, "f", 20)
    with pytest.raises(StaleHandle, match="truncated"):
        publish(world, opened, 900, version=0)
    assert world.stat("f").length == 20
    assert publish(world, opened, 30, version=1).length == 30
    inode = world.call(Close(opened.inode.id, opened.session, 999, 0))
    assert inode.length == 30, "a late close ends its session, and its length is ignored"


def test_a_version_from_the_future_is_refused(world: World) -> None:
    opened = world.open("f", WRITE)
    with pytest.raises(InvalidArgument, match="truncate version"):
        publish(world, opened, 1, version=3)


def test_open_truncates(world: World) -> None:
    world.create("f", length=500)
    opened = world.open("f", os.O_WRONLY | os.O_TRUNC)
    assert (opened.inode.length, opened.inode.truncate_version) == (0, 1)
    world.close(opened)
    world.create("empty")
    assert world.open("empty", os.O_WRONLY | os.O_TRUNC).inode.truncate_version == 0


def test_a_lower_cut_takes_the_place_of_a_pending_one(world: World) -> None:
    world.create("f", length=500)
    truncate(world, "f", 100)
    inode = truncate(world, "f", 50)
    assert (inode.truncate_version, inode.pending_cut) == (2, 50)
    assert [key.version for key, _ in cuts(world)] == [1, 2]


def test_a_higher_cut_waits_for_the_pending_one(world: World) -> None:
    opened = world.open("f", WRITE)
    publish(world, opened, 500)
    truncate(world, "f", 100)
    publish(world, opened, 400, version=1)
    with pytest.raises(Busy, match="earlier truncation"):
        truncate(world, "f", 200)
    assert world.stat("f").length == 400


def test_lengths_no_file_can_have(world: World) -> None:
    opened = world.open("f", WRITE)
    world.create("g")
    with pytest.raises(InvalidArgument) as caught:
        truncate(world, "g", -1)
    assert caught.value.errno == errno.EINVAL
    limit = MIB << 32
    with pytest.raises(InvalidArgument) as caught:
        truncate(world, "g", limit + 1)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(InvalidArgument):
        publish(world, opened, limit + 1)
    assert truncate(world, "g", limit).length == limit


def test_what_cannot_be_truncated(world: World) -> None:
    world.mkdir("d")
    world.symlink("dangling", "x")
    with pytest.raises(IsADirectory):
        truncate(world, "d", 0)
    with pytest.raises(NotFound):
        truncate(world, "dangling", 0)


def test_truncate_needs_permission_or_an_own_session(world: World) -> None:
    opened = world.open("f", WRITE, ALICE, mode=0o400)
    inode = opened.inode.id
    with pytest.raises(PermissionDenied):
        world.call(Truncate(ROOT_INODE, "f", 9), ALICE)
    assert world.call(Truncate(inode, "", 9, opened.session), ALICE).length == 9
    with pytest.raises(PermissionDenied):
        world.call(Truncate(inode, "", 10, opened.session), ALICE, client=2)


def test_truncate_drops_setuid(world: World) -> None:
    world.create("f", ALICE, length=9)
    world.chmod("f", 0o6777)
    assert truncate(world, "f", 5).mode == 0o6777
    assert world.call(Truncate(ROOT_INODE, "f", 4), BOB).mode == 0o777
