"""Chunks on real storage nodes while these are killed: no error, no long stall, nothing lost.

The native client writes and reads without the metadata service, by the routing alone.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from deploy.local import LocalCluster, Programs
from fs3._native import IoClient
from fs3.client.ports import IO_REQUEST
from fs3.ids import new_incarnation, node_of
from fs3.model.routing import Routing, TargetState
from fs3.runtime.routing import RoutingWatcher
from fs3.units import KIB

pytestmark = pytest.mark.cluster

PROGRAMS = Programs("tests.integration.fake_manager", "storage_node")
WAIT_S = 30.0
CHUNK = 256 * KIB
BLOCK = 64 * KIB
STALL_MAX_S = 1.0
INODE = 77


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster", owner=os.getpid(), programs=PROGRAMS)
    made.up(nodes=3, replicas=2)
    yield made
    made.down()


class Client:
    """A native client that follows the routing, with one file open on all chains."""

    def __init__(self, url: str) -> None:
        self.watcher = RoutingWatcher(url)
        self.watcher.start()
        routing = self.watcher.wait_ready(WAIT_S)
        self.io = IoClient(cluster_id=routing.cluster_id, incarnation=new_incarnation())
        self.watcher.subscribe(self._follow)
        chains = [chain.id for chain in routing.chains]
        self.handle = self.io.open_file(INODE, CHUNK, chains, 1 << 40, 0)

    def write(self, block: int) -> None:
        data = content(block)
        (result,) = self.io.write(self._request(block), data, WAIT_S)
        assert result["code"] == 0, f"write of block {block}: error {result['code']}"

    def read(self, block: int) -> bytes:
        into = bytearray(BLOCK)
        (result,) = self.io.read(self._request(block), into, WAIT_S)
        assert result["code"] == 0, f"read of block {block}: error {result['code']}"
        return bytes(into)

    def wait_for(self, claim: object) -> Routing:
        deadline = time.monotonic() + WAIT_S
        while not claim(self.watcher.routing()):  # type: ignore[operator]
            assert time.monotonic() < deadline, self.watcher.routing()
            time.sleep(0.002)
        return self.watcher.routing()

    def close(self) -> None:
        self.watcher.close()
        self.io.close()

    def _request(self, block: int) -> np.ndarray:
        return np.array([(self.handle, 0, block * BLOCK, BLOCK, 0)], dtype=IO_REQUEST)

    def _follow(self, routing: Routing) -> None:
        self.io.set_routing(
            [
                (
                    chain.id,
                    chain.version,
                    [(m.target, m.generation, m.state, m.host, m.port) for m in chain.members],
                )
                for chain in routing.chains
            ]
        )


def content(block: int) -> bytes:
    return np.random.default_rng(block).bytes(BLOCK)


class Load:
    """Writes new blocks and reads old ones from several threads until it is stopped."""

    def __init__(self, client: Client, threads: int = 3) -> None:
        self.client = client
        self.acknowledged: list[int] = []
        self.slowest_s = 0.0
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number, threads)) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures, self.failures

    def _run(self, first: int, step: int) -> None:
        block = first
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                self.client.write(block)
                if block % 4 == first:
                    assert self.client.read(block) == content(block)
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.acknowledged.append(block)
                block += step
                time.sleep(0.005)
        except Exception as error:
            self.failures.append(repr(error))


def serves_without(node: int) -> object:
    def claim(routing: Routing) -> bool:
        return not any(node_of(m.target) == node for c in routing.chains for m in c.serving)

    return claim


def is_whole(routing: Routing) -> bool:
    return all(
        member.state is TargetState.SERVING for chain in routing.chains for member in chain.members
    )


def check(client: Client, blocks: list[int]) -> None:
    wrong = [block for block in blocks if client.read(block) != content(block)]
    assert not wrong, f"{len(wrong)} of {len(blocks)} acknowledged blocks read back wrong: {wrong}"


def test_a_killed_node_costs_no_error_and_no_data(cluster: LocalCluster) -> None:
    with closing(Client(cluster.url)) as client:
        load = Load(client)
        time.sleep(1.0)
        before = len(load.acknowledged)
        killed_at = time.monotonic()
        cluster.kill("node-2")
        client.wait_for(serves_without(2))
        shortened_s = time.monotonic() - killed_at
        time.sleep(1.0)
        load.stop()
        assert len(load.acknowledged) > before > 20
        check(client, load.acknowledged)
        print(f"shortened {shortened_s:.3f} s, slowest operation {load.slowest_s:.3f} s")
        assert load.slowest_s < STALL_MAX_S
        assert shortened_s < STALL_MAX_S


def test_a_restarted_node_is_filled_while_writes_go_on(cluster: LocalCluster) -> None:
    with closing(Client(cluster.url)) as client:
        load = Load(client)
        time.sleep(0.5)
        cluster.kill("node-2")
        client.wait_for(serves_without(2))
        time.sleep(0.5)
        cluster.start("node-2")
        client.wait_for(is_whole)
        load.stop()
        # The copies alone: without node 1 half of the chains have only node 2 left.
        cluster.kill("node-1")
        client.wait_for(serves_without(1))
        check(client, load.acknowledged)


def test_everything_killed_keeps_every_acknowledged_write(cluster: LocalCluster) -> None:
    with closing(Client(cluster.url)) as client:
        load = Load(client)
        time.sleep(1.0)
        cluster.kill()
        cluster.up()
        client.wait_for(is_whole)
        time.sleep(0.2)
        load.stop()
        check(client, load.acknowledged)
