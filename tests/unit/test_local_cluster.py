"""A local cluster's directory, ports, processes and one-line errors, without starting daemons."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deploy import local, processes
from deploy.local import LocalCluster, free_port
from fs3.config import toml
from fs3.config.cluster import (
    CLUSTER_FILE,
    ClusterFile,
    Endpoint,
    Process,
    parse_url,
    read_cluster_file,
)
from fs3.config.manager import FormationConfig, ManagerConfig
from fs3.config.storage import StorageConfig
from fs3.errors import (
    Busy,
    InvalidArgument,
    NoSpace,
    NotFound,
    PermissionDenied,
    VersionMismatch,
)
from fs3.runtime import host


def write_cluster(directory: Path, **fields: object) -> None:
    described = {"url": "fs3://127.0.0.1:1", "nodes": 3, "replicas": 2, "chains": 12} | fields
    (directory / CLUSTER_FILE).write_bytes(msgspec.json.encode({"format": 1} | described))


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("fs3://127.0.0.1:7000", Endpoint("127.0.0.1", 7000)),
        ("fs3://node.example:1/", Endpoint("node.example", 1)),
        ("fs3://[::1]:7000", Endpoint("::1", 7000)),
    ],
)
def test_urls(url: str, endpoint: Endpoint) -> None:
    assert parse_url(url) == endpoint
    assert parse_url(f"fs3://{endpoint}") == endpoint


@pytest.mark.parametrize(
    "url", ["", "fs3://", "fs3://host", "http://host:1", "fs3://host:x", "fs3://host:70000"]
)
def test_wrong_urls_say_what_is_right(url: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_url(url)


def test_no_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=f"fs3 up --dir {tmp_path}"):
        read_cluster_file(tmp_path)
    with pytest.raises(NotFound, match="no cluster in"):
        LocalCluster(tmp_path).down()


def test_a_newer_cluster_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / CLUSTER_FILE).write_text('{"format": 2}')
    with pytest.raises(VersionMismatch, match="upgrade fs3"):
        read_cluster_file(tmp_path)


def test_a_damaged_cluster_file_is_named(tmp_path: Path) -> None:
    (tmp_path / CLUSTER_FILE).write_text("{}")
    with pytest.raises(InvalidArgument, match="damaged"):
        read_cluster_file(tmp_path)


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InvalidArgument, match="choose an empty --dir"):
        LocalCluster(tmp_path).up()


def test_an_unwritable_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(PermissionDenied, match="choose another --dir"):
        LocalCluster(tmp_path).up()


def test_a_directory_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="choose another --dir"):
        LocalCluster(tmp_path / "file" / "below").up()


def test_too_little_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "FREE_BYTES_MIN", 1 << 62)
    with pytest.raises(NoSpace, match="make room"):
        LocalCluster(tmp_path).up()


def test_a_cluster_on_a_full_disk_may_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cluster(tmp_path)
    monkeypatch.setattr(local, "FREE_BYTES_MIN", 1 << 62)
    with pytest.raises(InvalidArgument, match="has 3 nodes, not 4"):  # past the look at the space
        LocalCluster(tmp_path).up(nodes=4)


def test_a_wanted_port_in_use_is_refused(tmp_path: Path) -> None:
    with local.socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Busy, match=f"port {port} on 127.0.0.1 is in use"):
            LocalCluster(tmp_path).up(port=port)
    assert not (tmp_path / CLUSTER_FILE).exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"nodes": 4}, "has 3 nodes, not 4"),
        ({"replicas": 3}, "has 2 replicas, not 3"),
        ({"chains": 5}, "has 12 chains, not 5"),
    ],
)
def test_an_existing_cluster_does_not_change_shape(
    tmp_path: Path, asked: dict[str, int], message: str
) -> None:
    write_cluster(tmp_path)
    with pytest.raises(InvalidArgument, match=message):
        LocalCluster(tmp_path).up(**asked)


@pytest.mark.parametrize(("nodes", "replicas"), [(1, 2), (3, 4), (2, 0)])
def test_impossible_shapes_are_refused(tmp_path: Path, nodes: int, replicas: int) -> None:
    with pytest.raises(InvalidArgument, match="replicas"):
        LocalCluster(tmp_path).up(nodes=nodes, replicas=replicas)


def test_one_node_has_one_replica_by_default() -> None:
    assert local._new_file(1, None, None).replicas == 1
    assert local._new_file(3, None, None).chains >= 8


def test_free_ports_are_below_those_of_outgoing_connections() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < low for _ in range(20))


# Processes


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_recycled_pid_is_never_killed() -> None:
    child = sleeper()
    try:
        ticks = host.start_ticks(child.pid)
        assert ticks is not None
        ours = Process("node-1", child.pid, ticks, host.boot_id())
        recycled = Process("node-1", child.pid, ticks - 1, host.boot_id())
        other_boot = Process("node-1", child.pid, ticks, "another boot")
        assert [processes.is_running(p) for p in (ours, recycled, other_boot)] == [
            True,
            False,
            False,
        ]
        for stranger in (recycled, other_boot):
            processes.send(stranger, signal.SIGKILL)
        assert child.poll() is None
        processes.send(ours, signal.SIGKILL)
        assert processes.wait_ended([ours], 5.0) == []
    finally:
        child.kill()
        child.wait()


def test_a_zombie_does_not_count_as_running() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    ticks = host.start_ticks(child.pid)
    zombie = Process("x", child.pid, ticks or 0, host.boot_id())
    assert processes.wait_ended([zombie], 10.0) == []
    assert host.start_ticks(child.pid) == ticks, "nobody has waited for it"
    assert not processes.is_running(zombie)
    child.wait()


def test_a_stopped_process_is_not_running() -> None:
    assert not processes.is_running(Process("node-1"))
    processes.send(Process("node-1"), signal.SIGKILL)


def test_the_last_line_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert processes.last_line(log, 0) == ""
    log.write_text("first\nsecond\n\n")
    assert processes.last_line(log, 0) == "second"
    assert processes.last_line(log, log.stat().st_size) == ""


# Settings


def test_settings_survive_their_file(tmp_path: Path) -> None:
    for settings in (
        StorageConfig(manager="fs3://h:1", directory="/a b", disks=("/x", "/y"), weight=2.5),
        ManagerConfig(directory='/"quoted"', port=5, formation=FormationConfig(nodes=7)),
    ):
        path = tmp_path / "settings.toml"
        path.write_text(toml.dump(settings))
        assert toml.load(path, type(settings)) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('manager = "x"\ndirectory = "y"\nshard = 1', "shard"),
        ('manager = "x"', "directory"),
        ('manager = "x"\ndirectory = "y"\nshards = 0', "shards"),
        ("manager = ", "settings.toml"),
    ],
    ids=["unknown key", "missing key", "bad value", "not TOML"],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        toml.load(path, StorageConfig)


def test_missing_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        toml.load(tmp_path / "no.toml", StorageConfig)


def test_the_cluster_file_survives(tmp_path: Path) -> None:
    write_cluster(tmp_path)
    file = read_cluster_file(tmp_path)
    assert file == ClusterFile(url="fs3://127.0.0.1:1", nodes=3, replicas=2, chains=12)
