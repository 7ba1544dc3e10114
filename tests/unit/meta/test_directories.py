"""mkdir, list, stat, symlink and link."""

import errno

import pytest

from fs3.errors import (
    AlreadyExists,
    Fs3Error,
    InvalidArgument,
    NotADirectory,
    NotFound,
    PermissionDenied,
)
from fs3.ids import ROOT_INODE
from fs3.model.inode import Kind
from fs3.wire.metadata import Link, List, Listing, Mkdir
from tests.meta_world import ALICE, BOB, World


def test_mkdir(world: World) -> None:
    inode = world.mkdir("d", ALICE, mode=0o1750)
    assert (inode.kind, inode.mode, inode.uid, inode.gid) == (Kind.DIRECTORY, 0o1750, *ALICE)
    assert (inode.nlink, inode.parent, inode.length) == (2, ROOT_INODE, 0)
    assert inode.layout == world.stat("/").layout
    root = world.stat("/")
    assert (root.nlink, root.mtime_ns, root.ctime_ns) == (3, inode.ctime_ns, inode.ctime_ns)
    world.mkdir("e/")
    assert world.stat("/").nlink == 4


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("d", AlreadyExists),
        ("d/", AlreadyExists),
        ("f", AlreadyExists),
        ("link", AlreadyExists),
        (".", AlreadyExists),
        ("d/..", AlreadyExists),
        ("/", AlreadyExists),
        ("missing/d", NotFound),
        ("f/d", NotADirectory),
    ],
)
def test_mkdir_refusals(world: World, path: str, kind: type[Fs3Error]) -> None:
    world.mkdir("d")
    world.create("f")
    world.symlink("link", "nowhere")
    with pytest.raises(kind):
        world.mkdir(path)


def test_mkdir_needs_permission(world: World) -> None:
    world.mkdir("d", ALICE)
    with pytest.raises(PermissionDenied):
        world.mkdir("d/e", BOB)


def test_mkdir_with_parents(world: World) -> None:
    made = world.call(Mkdir(ROOT_INODE, "a/b/../c//d/", 0o500, parents=True), ALICE)
    assert world.stat("a/c/d") == made
    assert [world.stat(p).mode for p in ("a", "a/b", "a/c", "a/c/d")] == [0o700] * 3 + [0o500]
    assert world.stat("a").nlink == 4
    again = world.call(Mkdir(ROOT_INODE, "/a/c/d", parents=True))
    assert again == made
    with pytest.raises(PermissionDenied):
        world.call(Mkdir(ROOT_INODE, "/a/c/d", parents=True), BOB)
    world.symlink("to-a", "a")
    world.call(Mkdir(ROOT_INODE, "to-a/e", parents=True))
    assert world.stat("a/e").kind is Kind.DIRECTORY


def test_mkdir_with_parents_all_or_nothing(world: World) -> None:
    world.create("f")
    world.mkdir("d")
    with pytest.raises(AlreadyExists):
        world.call(Mkdir(ROOT_INODE, "f", parents=True))
    with pytest.raises(NotADirectory):
        world.call(Mkdir(ROOT_INODE, "f/x", parents=True))
    with pytest.raises(InvalidArgument):
        world.call(Mkdir(ROOT_INODE, "d/new/" + "n" * 256, parents=True))
    assert world.names("d") == []


def test_list_is_in_byte_order(world: World) -> None:
    for name in ("b", "a", "é", "B", "a.b", "zz", "ab"):
        world.create(name)
    names = world.names("/")
    assert names == sorted(names, key=str.encode)
    assert names == ["B", "a", "a.b", "ab", "b", "zz", "é"]


def test_list_pages(world: World) -> None:
    for n in range(10):
        world.create(f"f{n}")
    seen, after, pages = [], "", 0
    while True:
        page: Listing = world.call(List(ROOT_INODE, "/", after=after, limit=3))
        seen += [entry.name for entry in page.entries]
        pages += 1
        if not page.more:
            break
        after = page.entries[-1].name
    assert seen == [f"f{n}" for n in range(10)]
    assert pages == 4
    exact: Listing = world.call(List(ROOT_INODE, "/", limit=10))
    assert not exact.more


def test_list_attributes(world: World) -> None:
    inode = world.create("f", length=5)
    world.symlink("link", "f")
    full = world.call(List(ROOT_INODE, "")).entries
    assert [(e.name, e.kind) for e in full] == [("f", Kind.FILE), ("link", Kind.SYMLINK)]
    assert full[0].inode == inode
    bare = world.call(List(ROOT_INODE, "", attributes=False)).entries
    assert [(e.id, e.inode) for e in bare] == [(e.id, None) for e in full]


def test_list_permissions(world: World) -> None:
    world.mkdir("d", ALICE)
    world.create("d/f", ALICE)
    world.chmod("d", 0o711)
    with pytest.raises(PermissionDenied):
        world.names("d", BOB)
    world.chmod("d", 0o744)
    [entry] = world.call(List(ROOT_INODE, "d"), BOB).entries
    assert (entry.name, entry.inode) == ("f", None), "names may be read, inodes not be searched"


def test_list_refusals(world: World) -> None:
    world.create("f")
    with pytest.raises(NotADirectory):
        world.names("f")
    with pytest.raises(NotFound):
        world.names("missing")
    for limit in (0, 4097):
        with pytest.raises(InvalidArgument):
            world.call(List(ROOT_INODE, "/", limit=limit))


def test_symlink(world: World) -> None:
    inode = world.symlink("link", "täglich/x", ALICE)
    assert (inode.kind, inode.mode, inode.uid, inode.nlink) == (Kind.SYMLINK, 0o777, ALICE[0], 1)
    assert (inode.target, inode.length) == ("täglich/x", 10)
    assert world.stat("link") == inode


@pytest.mark.parametrize(
    ("path", "target", "kind", "number"),
    [
        ("f", "x", AlreadyExists, errno.EEXIST),
        ("new", "", NotFound, errno.ENOENT),
        ("new/", "x", NotFound, errno.ENOENT),
        ("new", "x" * 4097, InvalidArgument, errno.ENAMETOOLONG),
        ("f/new", "x", NotADirectory, errno.ENOTDIR),
    ],
)
def test_symlink_refusals(
    world: World, path: str, target: str, kind: type[Fs3Error], number: int
) -> None:
    world.create("f")
    with pytest.raises(kind) as caught:
        world.symlink(path, target)
    assert caught.value.errno == number


def test_link(world: World) -> None:
    before = world.create("f", length=3)
    world.mkdir("d")
    linked = world.link("f", "d/g")
    assert (linked.id, linked.nlink, linked.ctime_ns) == (before.id, 2, world.now_ns)
    assert world.stat("f") == world.stat("d/g") == linked
    world.remove("f")
    assert world.stat("d/g").nlink == 1
    world.symlink("s", "d/g")
    assert world.link("s", "s2").kind is Kind.SYMLINK


@pytest.mark.parametrize(
    ("path", "new", "kind", "number"),
    [
        ("missing", "n", NotFound, errno.ENOENT),
        ("d", "n", PermissionDenied, errno.EPERM),
        ("f", "d", AlreadyExists, errno.EEXIST),
        ("f", "f", AlreadyExists, errno.EEXIST),
        ("f", "n/", NotFound, errno.ENOENT),
        ("f", "missing/n", NotFound, errno.ENOENT),
        ("f", "f/n", NotADirectory, errno.ENOTDIR),
    ],
)
def test_link_refusals(
    world: World, path: str, new: str, kind: type[Fs3Error], number: int
) -> None:
    world.create("f")
    world.mkdir("d")
    with pytest.raises(kind) as caught:
        world.link(path, new)
    assert caught.value.errno == number


def test_link_of_a_file_without_names(world: World) -> None:
    opened = world.open("f", 0o101)
    world.remove("f")
    with pytest.raises(NotFound):
        world.call(Link(opened.inode.id, "", ROOT_INODE, "again"))
