"""Batches and replays: one by one, all or nothing, exactly once."""

import logging
import os
from typing import Any, cast

import pytest

from fs3.errors import (
    AlreadyExists,
    Busy,
    Fs3Error,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from fs3.ids import ROOT_INODE, RequestId
from fs3.wire import keys
from fs3.wire.metadata import Caller, Mkdir, Open, Remove, Rename, Stat, Sync
from meta_service.namespace import batch
from meta_service.namespace.batch import Call
from meta_service.namespace.counters import BLOCK, InodeNumbers
from meta_service.namespace.tree import Tree
from tests.meta_world import ALICE, World, decoded

CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY


def outcomes(world: World, *requests: Any) -> list[str]:
    """Of one batch: the type of each reply or error."""
    calls = [Call(world.caller(), request) for request in requests]
    found = []
    for call, reply in zip(calls, world.batch(calls), strict=True):
        try:
            found.append(type(decoded(call.request, reply)).__name__)
        except Fs3Error as error:
            found.append(type(error).__name__)
    return found


def test_requests_see_those_before_them_and_fail_alone(world: World) -> None:
    assert outcomes(
        world,
        Mkdir(ROOT_INODE, "d"),
        Open(ROOT_INODE, "d/f", CREATE),
        Open(ROOT_INODE, "d/f", CREATE),
        Mkdir(ROOT_INODE, "d"),
        Rename(ROOT_INODE, "d", ROOT_INODE, "e"),
        Stat(ROOT_INODE, "d/f"),
        Stat(ROOT_INODE, "e/f"),
        Remove(ROOT_INODE, "e"),
        Remove(ROOT_INODE, "e/f"),
        Remove(ROOT_INODE, "e"),
    ) == [
        "Inode",
        "Opened",
        "AlreadyExists",
        "AlreadyExists",
        "Empty",
        "NotFound",
        "Inode",
        "NotEmpty",
        "Empty",
        "Empty",
    ]


def test_a_retry_gets_the_first_result(world: World) -> None:
    caller = world.caller()
    first = world.send(caller, Open(ROOT_INODE, "f", CREATE))
    world.remove("f")
    assert world.send(caller, Open(ROOT_INODE, "f", CREATE)) == first
    assert world.names("/") == [], "it was not made again"


def test_a_retry_gets_the_first_error(world: World) -> None:
    caller = world.caller()
    world.mkdir("d")
    with pytest.raises(AlreadyExists) as first:
        world.send(caller, Mkdir(ROOT_INODE, "d"))
    world.remove("d")
    with pytest.raises(AlreadyExists) as again:
        world.send(caller, Mkdir(ROOT_INODE, "d"))
    assert (str(again.value), again.value.errno) == (str(first.value), first.value.errno)
    assert world.names("/") == []


def test_a_retry_in_the_same_batch(world: World) -> None:
    call = Call(world.caller(), Mkdir(ROOT_INODE, "d"))
    first, again = world.batch([call, call])
    assert first == again
    assert first.status == 0


def test_an_answer_of_try_again_is_not_kept(world: World) -> None:
    caller = world.caller()
    world.numbers = InodeNumbers(world.engine)
    inputs = world.inputs()
    call = Call(caller, Mkdir(ROOT_INODE, "d"))
    [busy] = world.engine.transact(lambda t: batch.run_batch(t, inputs, [call]))
    assert busy.status == Busy.number
    assert world.send(caller, Mkdir(ROOT_INODE, "d")).nlink == 2


def test_clients_have_numbers_of_their_own(world: World) -> None:
    one, two = world.caller(client=1), world.caller(client=2)
    assert one.request == two.request
    world.send(one, Mkdir(ROOT_INODE, "d"))
    with pytest.raises(AlreadyExists):
        world.send(two, Mkdir(ROOT_INODE, "d"))


def test_records_go_once_acknowledged_and_late_copies_are_refused(world: World) -> None:
    early = world.caller()
    world.send(early, Mkdir(ROOT_INODE, "early"))
    for n in range(200):
        world.mkdir(f"d{n}")
    kept = world.pairs(*keys.replays(1, 0, 1 << 62))
    assert len(kept) <= 66
    world.remove("early")
    with pytest.raises(InvalidArgument, match="late copy"):
        world.send(early, Mkdir(ROOT_INODE, "early"))
    assert "early" not in world.names("/")


def test_reads_leave_no_record(world: World) -> None:
    world.create("f")
    before = world.pairs(*keys.prefix_range(keys.REPLAY))
    world.stat("f")
    world.names("/")
    world.open("f", os.O_RDONLY)
    assert world.pairs(*keys.prefix_range(keys.REPLAY)) == before


def test_a_defect_is_internal_leaves_nothing_and_spares_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(tree: Tree, *_: object) -> None:
        tree.drop(ROOT_INODE)
        raise ZeroDivisionError

    monkeypatch.setitem(cast(dict[object, object], batch.OPERATIONS), Rename, broken)
    with caplog.at_level(logging.ERROR):
        assert outcomes(
            world,
            Mkdir(ROOT_INODE, "a"),
            Rename(ROOT_INODE, "a", ROOT_INODE, "b"),
            Mkdir(ROOT_INODE, "c"),
        ) == ["Inode", "Internal", "Inode"]
    assert world.names("/") == ["a", "c"]
    assert "defect in Rename" in caplog.text


def test_errors_name_the_path_and_travel_whole(world: World) -> None:
    world.mkdir("d", mode=0o700)
    with pytest.raises(PermissionDenied, match=r"^d/x: Permission denied$"):
        world.stat("d/x", ALICE)
    with pytest.raises(NotFound, match=r"^no/such: No such file or directory$"):
        world.stat("no/such")


def test_inode_numbers_are_never_given_twice(world: World) -> None:
    one, two = InodeNumbers(world.engine), InodeNumbers(world.engine)
    taken = []
    for _ in range(3):
        for numbers in (one, two):
            numbers.refill()
            taken += [numbers.take() for _ in range(BLOCK // 2)]
    assert len(set(taken)) == len(taken)
    assert ROOT_INODE not in taken


def test_a_block_of_numbers_ends_in_busy(world: World) -> None:
    numbers = InodeNumbers(world.engine)
    numbers.refill()
    for _ in range(BLOCK):
        numbers.take()
    with pytest.raises(Busy):
        numbers.take()
    numbers.refill()
    numbers.take()


def test_requests_keep_their_numbers_apart_from_sessions(world: World) -> None:
    """A retried sync of a file that is gone by then still gets its first answer."""
    opened = world.open("f", os.O_CREAT | os.O_WRONLY)
    caller = world.caller()
    request = Sync(opened.inode.id, opened.session, 5, 0)
    first = world.send(caller, request)
    world.close(opened)
    world.remove("f")
    assert world.send(caller, request) == first
    fresh = Caller(0, 0, (), 1, RequestId(10_000), RequestId(0))
    with pytest.raises(NotFound):
        world.send(fresh, request)
