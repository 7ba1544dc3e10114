"""A forked child follows the routing over fs3rpc: newer versions arrive, a dead server is left."""

import gc
import os
import threading
from collections.abc import Iterator

import msgspec
import pytest

from fs3._native import RpcServer
from fs3.client import fork
from fs3.client.follower import RoutingFollower
from fs3.ids import ClusterId, Incarnation, NodeId
from fs3.model.routing import Node, NodeKind, NodeState, Routing
from fs3.wire.follow import FOLLOW, Follow, Followed
from fs3.wire.frame import PeerKind

CLUSTER = ClusterId(b"follow" + bytes(10))


class MetadataServer:
    """Answers Follow with `newest`, on a real socket."""

    def __init__(self) -> None:
        self.newest: Routing | None = None
        self.asked: list[Follow] = []
        self._server = RpcServer(
            "127.0.0.1",
            0,
            cluster_id=CLUSTER,
            node_id=9,
            incarnation=3,
            kind=PeerKind.META,
        )
        self.port = self._server.port
        self._stopping = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._stopping = True
        self._server.close()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stopping:
            for connection, number, method, body, _, _ in self._server.poll(16, 0.1):
                assert method == FOLLOW
                request = msgspec.msgpack.decode(body, type=Follow)
                self.asked.append(request)
                newest = self.newest
                is_news = newest is not None and newest.version > request.version
                reply = msgspec.msgpack.encode(Followed(newest if is_news else None))
                self._server.reply([(connection, number, 0, reply)])


@pytest.fixture
def servers() -> Iterator[list[MetadataServer]]:
    servers = [MetadataServer(), MetadataServer()]
    yield servers
    for server in servers:
        server.close()


def routing(servers: list[MetadataServer], version: int) -> Routing:
    nodes = tuple(
        Node(
            NodeId(number),
            NodeKind.META,
            Incarnation(1),
            NodeState.ALIVE,
            "127.0.0.1",
            server.port,
        )
        for number, server in enumerate(servers, 1)
    )
    return Routing(CLUSTER, epoch=1, version=version, nodes=nodes)


def test_newer_routing_arrives_also_from_the_next_server(servers: list[MetadataServer]) -> None:
    first, second = servers
    arrived: list[int] = []
    news = threading.Condition()

    def take(newest: Routing) -> None:
        with news:
            arrived.append(newest.version)
            news.notify_all()

    def wait_for(version: int) -> None:
        with news:
            assert news.wait_for(lambda: version in arrived, 10), f"{version} not in {arrived}"

    follower = RoutingFollower(routing(servers, 1), Incarnation(77), description="a worker")
    assert follower.start(1.0).version == 1
    follower.subscribe(take)
    try:
        first.newest = routing(servers, 2)
        wait_for(2)
        assert follower.routing().version == 2
        first.close()
        second.newest = routing(servers, 3)
        wait_for(3)
    finally:
        follower.close()
    assert arrived == [1, 2, 3]
    heard = second.asked[-1]
    assert (heard.client, heard.description) == (77, "a worker")


def test_a_forked_child_never_finalises_garbage_of_its_parent() -> None:
    """gRPC objects that wait for the collector abort the process that finalises them."""

    class Finalised:
        def __init__(self) -> None:
            self.itself = self  # only the collector can free it

        def __del__(self) -> None:
            if os.getpid() != parent:
                os._exit(3)

    parent = os.getpid()
    gc.disable()
    try:
        Finalised()
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0 if fork.is_child() else 4)
        _, status = os.waitpid(child, 0)
    finally:
        gc.enable()
    assert status == 0
