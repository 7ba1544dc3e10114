"""The whole local cluster as its user meets it: the commands, the client, and kill -9."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import LocalCluster
from fs3.client.admin import AdminClient
from fs3.client.connect import connect
from fs3.client.filesystem import FileSystem
from fs3.model.routing import TargetState
from fs3.units import KIB

pytestmark = pytest.mark.cluster

COLD_START_S = 3.0
STALL_MAX_S = 1.0
FILE_BYTES = 300 * KIB
WAIT_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster", owner=os.getpid())
    made.up(nodes=3, replicas=2)
    yield made
    made.down()


def fs3(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "fs3.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def content(number: int) -> bytes:
    return number.to_bytes(4, "big") * (FILE_BYTES // 4)


def check(fs: FileSystem, numbers: list[int]) -> None:
    wrong = [n for n in numbers if fs.read_bytes(f"/f{n}") != content(n)]
    assert not wrong, f"{len(wrong)} of {len(numbers)} acknowledged files read back wrong: {wrong}"


class Load:
    """Writes whole files and reads them back until it is stopped."""

    def __init__(self, fs: FileSystem) -> None:
        self.acknowledged: list[int] = []
        self.slowest_s = 0.0
        self.failures: list[str] = []
        self._fs = fs
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert not self.failures, self.failures

    def _run(self) -> None:
        number = 0
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                self._fs.write_bytes(f"/f{number}", content(number))
                assert self._fs.read_bytes(f"/f{number}") == content(number)
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.acknowledged.append(number)
                number += 1
        except Exception as error:
            self.failures.append(repr(error))


def wait_whole(url: str) -> None:
    deadline = time.monotonic() + WAIT_S
    with AdminClient(url) as admin:
        while any(
            member.state != TargetState.SERVING
            for chain in admin.status().chains
            for member in chain.members
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_cold_start_is_quick(tmp_path: Path) -> None:
    """From nothing to healthy, by the commands; the best of three, as tests run beside others."""
    took = []
    for attempt in range(3):
        where = ("--dir", str(tmp_path / str(attempt)))
        began = time.monotonic()
        up = fs3("up", "--nodes", "3", "--replicas", "2", *where)
        status = json.loads(fs3("status", "--json", *where).stdout)
        took.append(time.monotonic() - began)
        assert (up.returncode, status["healthy"], status["writable"]) == (0, True, True), up
        assert fs3("down", *where).returncode == 0
    assert min(took) < COLD_START_S, took


def test_up_down_and_data_by_the_commands(tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path / "c"))
    first = json.loads(fs3("up", "--json", *where).stdout)
    try:
        (tmp_path / "hello").write_text("hello")
        assert fs3("cp", str(tmp_path / "hello"), "fs3:/hello", *where).returncode == 0
        assert fs3("down", *where).returncode == 0
        assert fs3("cat", "/hello", *where).returncode == 2
        again = json.loads(fs3("up", "--json", *where).stdout)
        assert (again["url"], again["healthy"]) == (first["url"], True)
        assert fs3("cat", "/hello", *where).stdout == "hello"
        assert fs3("up", *where).returncode == 0
    finally:
        fs3("down", *where)


def test_a_killed_node_stalls_nobody(cluster: LocalCluster) -> None:
    with connect(cluster.url) as fs:
        load = Load(fs)
        time.sleep(1.0)
        cluster.kill("node-2")
        time.sleep(1.0)
        cluster.start("node-2")
        wait_whole(cluster.url)
        load.stop()
        print(f"{len(load.acknowledged)} files, slowest {load.slowest_s:.3f} s")
        assert load.slowest_s < STALL_MAX_S
        # The returned node's copies are good: half of the chains have them alone now.
        cluster.kill("node-1")
        check(fs, load.acknowledged)


def test_everything_killed_keeps_every_file(cluster: LocalCluster) -> None:
    with connect(cluster.url) as fs:
        load = Load(fs)
        time.sleep(1.0)
        cluster.kill()
        cluster.up()
        time.sleep(0.5)
        load.stop()
    with connect(cluster.url) as fs:
        check(fs, load.acknowledged)


@pytest.mark.parametrize("name", ["manager", "node-1"])
def test_a_killed_daemon_is_restarted_by_up(cluster: LocalCluster, name: str) -> None:
    with connect(cluster.url) as fs:
        fs.write_bytes("/f1", content(1))
        cluster.kill(name)
        cluster.up()
        check(fs, [1])
        fs.write_bytes("/f2", content(2))
        check(fs, [2])
