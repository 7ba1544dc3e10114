"""What the shell of a storage node relies on, held against the fake and the native server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fs3 import errors
from fs3._native import NativeError
from fs3.ids import NodeId, target_id
from fs3.model.routing import TargetState
from storage_node.engine.fake import FakeServer
from storage_node.engine.port import ChainMember, Server

TARGET, OTHER = target_id(NodeId(7), 0, 1), target_id(NodeId(8), 0, 1)
GENERATION = 1234

Make = Callable[[], Server]


def native_server(**arguments: object) -> Server:
    from fs3._native import StorageServer

    return StorageServer(**arguments)  # type: ignore[arg-type]


@pytest.fixture(params=[FakeServer, native_server], ids=["fake", "native"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Server] = []

    def one(port: int = 0) -> Server:
        server: Server = request.param(
            cluster_id=b"c" * 16,
            node_id=7,
            incarnation=99,
            host="127.0.0.1",
            ports=[port],
            inflight_bytes_max=1 << 26,
        )
        made.append(server)
        return server

    yield one
    for server in made:
        server.stop()


def member(target: int, state: TargetState, generation: int = GENERATION) -> ChainMember:
    return (target, generation, state, "127.0.0.1", 1)


def add(server: Server, path: Path, *, create: bool = True, generation: int = GENERATION) -> None:
    server.add_target(TARGET, generation, str(path / "target"), create=create)


def test_it_listens_from_construction_on(make: Make) -> None:
    ((host, port),) = make().endpoints()
    assert host == "127.0.0.1"
    assert port > 0


def test_a_port_in_use_is_unavailable(make: Make) -> None:
    ((_, port),) = make().endpoints()
    with pytest.raises(NativeError) as caught:
        make(port)
    assert caught.value.code == errors.Unavailable.number


def test_a_target_is_reached_at_its_shard(make: Make, tmp_path: Path) -> None:
    server = make()
    add(server, tmp_path)
    assert tuple(server.target_endpoint(TARGET)) == tuple(server.endpoints()[0])
    (space,) = server.space()
    assert space.target_id == TARGET
    assert 0 <= space.free_bytes <= space.capacity_bytes


def test_a_target_opens_again_and_only_as_itself(make: Make, tmp_path: Path) -> None:
    first = make()
    add(first, tmp_path)
    first.stop()
    add(make(), tmp_path, create=False)


def test_another_generation_is_a_conflict(make: Make, tmp_path: Path) -> None:
    first = make()
    add(first, tmp_path)
    first.stop()
    with pytest.raises(NativeError) as caught:
        add(make(), tmp_path, generation=GENERATION + 1)
    assert caught.value.code == errors.Conflict.number


def test_a_lost_target_is_not_made_again(make: Make, tmp_path: Path) -> None:
    with pytest.raises(NativeError):
        add(make(), tmp_path, create=False)


def test_a_chain_needs_its_target(make: Make) -> None:
    with pytest.raises(NativeError) as caught:
        make().set_chain(TARGET, 1, 1, [member(TARGET, TargetState.SERVING)])
    assert caught.value.code == errors.NotFound.number


def test_a_chain_with_another_generation_is_a_conflict(make: Make, tmp_path: Path) -> None:
    server = make()
    add(server, tmp_path)
    with pytest.raises(NativeError) as caught:
        server.set_chain(TARGET, 1, 1, [member(TARGET, TargetState.SERVING, GENERATION + 1)])
    assert caught.value.code == errors.Conflict.number


def test_older_versions_and_foreign_states_are_taken_quietly(make: Make, tmp_path: Path) -> None:
    server = make()
    add(server, tmp_path)
    server.set_chain(TARGET, 1, 5, [member(TARGET, TargetState.SERVING)])
    server.set_chain(TARGET, 1, 4, [member(OTHER, TargetState.SERVING)])
    offline = member(OTHER, TargetState.OFFLINE)
    server.set_chain(TARGET, 1, 6, [member(TARGET, TargetState.SERVING), offline])


def test_no_events_means_an_empty_list_in_time(make: Make) -> None:
    assert list(make().poll_events(0.01)) == []


def test_counters_are_numbers(make: Make) -> None:
    assert all(isinstance(value, int) for value in make().counters().values())


def test_stop_is_idempotent(make: Make) -> None:
    server = make()
    server.stop()
    server.stop()
