"""open and close: creation, flags, permissions, write sessions."""

import errno
import os
import stat

import pytest

from fs3.errors import (
    AlreadyExists,
    Fs3Error,
    InvalidArgument,
    IsADirectory,
    NotADirectory,
    NotFound,
    PermissionDenied,
    StaleHandle,
    Unavailable,
)
from fs3.ids import ROOT_INODE, ClusterId, SessionId
from fs3.model.inode import Kind, Layout
from fs3.model.routing import ChainTable, Routing
from fs3.wire import keys
from fs3.wire.metadata import Close, Open
from tests.meta_world import ALICE, BOB, World

CREATE = os.O_CREAT | os.O_WRONLY
EXCLUSIVE = CREATE | os.O_EXCL


def test_create_makes_a_file_of_the_caller(world: World) -> None:
    opened = world.open("f", CREATE, ALICE, mode=0o7640)
    inode = opened.inode
    assert opened.created
    assert opened.session
    assert (inode.kind, inode.mode, inode.uid, inode.gid) == (Kind.FILE, 0o7640, *ALICE)
    assert (inode.nlink, inode.length, inode.truncate_version) == (1, 0, 0)
    assert inode.atime_ns == inode.mtime_ns == inode.ctime_ns == world.now_ns
    assert world.stat("f") == inode
    root = world.stat("/")
    assert root.mtime_ns == root.ctime_ns == inode.ctime_ns


def test_each_file_has_its_own_seed_in_the_newest_table(world: World) -> None:
    world.routing = Routing(
        ClusterId(bytes(16)), 1, 2, tables=(ChainTable(1, 1, ()), ChainTable(1, 2, ()))
    )
    layouts = [world.create(f"f{n}").layout for n in range(2)]
    assert [(layout.table, layout.table_version) for layout in layouts if layout] == [(1, 2)] * 2
    assert len({layout.seed for layout in layouts if layout}) == 2


def test_a_layout_can_be_asked_for(world: World) -> None:
    wanted = Layout(table=1, table_version=1, chunk_size=65536, stripe=2)
    opened = world.call(Open(ROOT_INODE, "f", CREATE, layout=wanted))
    assert (opened.inode.layout.chunk_size, opened.inode.layout.stripe) == (65536, 2)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(table=1, table_version=1, chunk_size=65537, stripe=2),
        Layout(table=1, table_version=1, chunk_size=32768, stripe=2),
        Layout(table=1, table_version=1, chunk_size=65536, stripe=0),
        Layout(table=9, table_version=0, chunk_size=65536, stripe=1),
        Layout(table=1, table_version=7, chunk_size=65536, stripe=1),
    ],
)
def test_impossible_layouts(world: World, layout: Layout) -> None:
    with pytest.raises(InvalidArgument):
        world.call(Open(ROOT_INODE, "f", CREATE, layout=layout))
    assert world.names("/") == []


def test_without_a_chain_table_creation_waits_for_nodes(world: World) -> None:
    world.routing = Routing(ClusterId(bytes(16)), 1, 1)
    with pytest.raises(Unavailable, match="no chain table"):
        world.create("f")


def test_reading_needs_no_session_and_changes_nothing(world: World) -> None:
    before = world.create("f")
    opened = world.open("f", os.O_RDONLY)
    assert (opened.inode, opened.session, opened.created) == (before, 0, False)
    assert world.open("/", os.O_RDONLY | os.O_DIRECTORY).inode.id == ROOT_INODE


def test_an_existing_file_is_opened_and_not_made_again(world: World) -> None:
    inode = world.create("f", length=5)
    opened = world.open("f", os.O_CREAT | os.O_RDWR)
    assert (opened.inode.id, opened.inode.length, opened.created) == (inode.id, 5, False)


def test_create_follows_a_dangling_link_unless_exclusive(world: World) -> None:
    world.mkdir("d")
    world.symlink("link", "d/new")
    with pytest.raises(AlreadyExists):
        world.open("link", EXCLUSIVE)
    opened = world.open("link", CREATE)
    assert world.stat("d/new").id == opened.inode.id


@pytest.mark.parametrize(
    ("path", "flags", "kind", "number"),
    [
        ("missing", os.O_RDONLY, NotFound, errno.ENOENT),
        ("missing/f", CREATE, NotFound, errno.ENOENT),
        ("file/f", CREATE, NotADirectory, errno.ENOTDIR),
        ("file", EXCLUSIVE, AlreadyExists, errno.EEXIST),
        ("link", EXCLUSIVE, AlreadyExists, errno.EEXIST),
        ("dir", os.O_WRONLY, IsADirectory, errno.EISDIR),
        ("dir", os.O_RDONLY | os.O_TRUNC, IsADirectory, errno.EISDIR),
        ("dir", os.O_RDONLY | os.O_CREAT, IsADirectory, errno.EISDIR),
        ("new/", CREATE, IsADirectory, errno.EISDIR),
        ("file/", os.O_RDONLY, NotADirectory, errno.ENOTDIR),
        ("file", os.O_RDONLY | os.O_DIRECTORY, NotADirectory, errno.ENOTDIR),
        ("link", os.O_RDONLY | os.O_NOFOLLOW, InvalidArgument, errno.ELOOP),
        ("file", os.O_ACCMODE, InvalidArgument, errno.EINVAL),
        ("new", CREATE | os.O_DIRECTORY, InvalidArgument, errno.EINVAL),
    ],
)
def test_refusals(world: World, path: str, flags: int, kind: type[Fs3Error], number: int) -> None:
    world.create("file")
    world.mkdir("dir")
    world.symlink("link", "file")
    with pytest.raises(kind) as caught:
        world.open(path, flags)
    assert caught.value.errno == number
    assert world.names("/") == ["dir", "file", "link"]


@pytest.mark.parametrize(
    ("mode", "flags", "is_allowed"),
    [
        (0o604, os.O_RDONLY, True),
        (0o602, os.O_RDONLY, False),
        (0o602, os.O_WRONLY, True),
        (0o604, os.O_WRONLY, False),
        (0o604, os.O_RDWR, False),
        (0o606, os.O_RDWR, True),
        (0o604, os.O_RDONLY | os.O_TRUNC, False),
    ],
)
def test_mode_bits_decide(world: World, mode: int, flags: int, is_allowed: bool) -> None:
    world.create("f", ALICE)
    world.chmod("f", mode)
    if is_allowed:
        world.open("f", flags, BOB)
        return
    with pytest.raises(PermissionDenied) as caught:
        world.open("f", flags, BOB)
    assert caught.value.errno == errno.EACCES


def test_group_bits_hide_the_bits_of_others(world: World) -> None:
    world.create("f", ALICE)
    world.chmod("f", 0o606)
    request = Open(ROOT_INODE, "f", os.O_RDONLY)
    with pytest.raises(PermissionDenied):
        world.call(request, (BOB[0], ALICE[1]))
    with pytest.raises(PermissionDenied):
        world.call(request, BOB, groups=(ALICE[1],))
    assert world.call(request, BOB)


def test_the_creator_may_write_whatever_the_mode(world: World) -> None:
    opened = world.open("f", CREATE, ALICE, mode=0o000)
    assert opened.session
    with pytest.raises(PermissionDenied):
        world.open("f", os.O_RDONLY, ALICE)


def test_entries_need_write_and_search_permission(world: World) -> None:
    world.mkdir("d", ALICE, mode=0o755)
    with pytest.raises(PermissionDenied):
        world.create("d/f", BOB)
    world.chmod("d", 0o766)
    with pytest.raises(PermissionDenied):
        world.create("d/f", BOB)
    world.chmod("d", 0o733)
    world.create("d/f", BOB)


def test_setgid_directories_give_their_group(world: World) -> None:
    world.mkdir("d", ALICE)
    world.chmod("d", 0o2777)
    assert world.create("d/f", BOB).gid == ALICE[1]
    inside = world.mkdir("d/sub", BOB)
    assert (inside.gid, inside.mode) == (ALICE[1], 0o2755)
    foreign = world.create("d/x", BOB, mode=0o2775)
    assert foreign.mode == 0o775, "no setgid program for a group that the maker is not in"
    own = world.create("d/y", ALICE, mode=0o2775)
    assert own.mode == 0o2775


def test_opening_for_write_drops_setuid(world: World) -> None:
    world.create("f", ALICE)
    world.chmod("f", 0o6777)
    assert world.open("f", os.O_RDONLY, BOB).inode.mode == 0o6777
    assert world.open("f", os.O_WRONLY).inode.mode == 0o6777, "root keeps it"
    assert world.open("f", os.O_WRONLY, BOB).inode.mode == 0o777
    world.chmod("f", 0o6767)
    assert world.open("f", os.O_WRONLY, BOB).inode.mode == 0o2767, "setgid without x locks"
    assert stat.S_ISREG(world.stat("f").st_mode)


def test_close_ends_the_session_and_publishes(world: World) -> None:
    opened = world.open("f", CREATE)
    inode = world.close(opened, length=77)
    assert inode.length == 77
    assert world.pairs(*keys.sessions(inode.id)) == []
    with pytest.raises(StaleHandle, match="has ended"):
        world.close(opened)


def test_only_the_client_that_opened_may_close(world: World) -> None:
    opened = world.open("f", CREATE)
    with pytest.raises(StaleHandle):
        world.close(opened, client=2)
    world.close(opened)


def test_close_of_an_unknown_session_or_inode(world: World) -> None:
    inode = world.create("f")
    with pytest.raises(StaleHandle):
        world.call(Close(inode.id, SessionId(12345)))
    world.remove("f")
    with pytest.raises(NotFound):
        world.call(Close(inode.id, SessionId(12345)))
