"""The control plane with real processes: everything but data, which the fake server leaves out.

What moves is timed from the outside, as a client sees it: by the routing that is pushed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deploy import processes
from deploy.local import LocalCluster, Programs
from fs3.cli.main import main
from fs3.ids import NodeId, node_of
from fs3.model.routing import Chain, Routing, TargetState
from fs3.runtime.routing import RoutingWatcher

pytestmark = pytest.mark.cluster

FAKES = Programs("tests.integration.fake_manager", "tests.integration.fake_node")
WAIT_S = 20.0
DETECTION_S = 1.5
"""From SIGKILL until the shorter chains have reached a client, on a busy machine; some 15 ms when
idle. Silence alone takes 2 s, so only evidence can be this fast."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster", owner=os.getpid(), programs=FAKES)
    made.up()
    yield made
    made.down()


@pytest.fixture
def watcher(cluster: LocalCluster) -> Iterator[RoutingWatcher]:
    with closing(RoutingWatcher(cluster.url)) as watching:
        watching.start()
        watching.wait_ready(WAIT_S)
        yield watching


def wait_for(watcher: RoutingWatcher, claim: object, timeout_s: float = WAIT_S) -> Routing:
    deadline = time.monotonic() + timeout_s
    while not claim(watcher.routing()):  # type: ignore[operator]
        assert time.monotonic() < deadline, watcher.routing()
        time.sleep(0.002)
    return watcher.routing()


def states_of(chain: Chain, node: int) -> list[TargetState]:
    return [m.state for m in chain.members if node_of(m.target) == NodeId(node)]


def serves_without(node: int) -> object:
    def claim(routing: Routing) -> bool:
        return all(TargetState.SERVING not in states_of(c, node) for c in routing.chains) and all(
            chain.serving for chain in routing.chains
        )

    return claim


def is_whole(routing: Routing) -> bool:
    return all(len(chain.serving) == len(chain.members) for chain in routing.chains)


def test_a_killed_node_is_out_of_its_chains_at_once(
    cluster: LocalCluster, watcher: RoutingWatcher
) -> None:
    took = []
    for _ in range(3):  # the median, as tests run beside others
        time.sleep(0.3)
        began = time.monotonic()
        cluster.kill("node-2")
        wait_for(watcher, serves_without(2))
        took.append(time.monotonic() - began)
        cluster.start("node-2")
        wait_for(watcher, is_whole)
    assert sorted(took)[1] < DETECTION_S, took


def test_a_restarted_node_serves_again(cluster: LocalCluster, watcher: RoutingWatcher) -> None:
    before = {chain.id: chain.version for chain in watcher.routing().chains}
    cluster.kill("node-2")
    wait_for(watcher, serves_without(2))
    cluster.start("node-2")
    routing = wait_for(watcher, is_whole)
    touched = [c for c in routing.chains if states_of(c, 2)]
    # Offline, waiting, copied to, serving: four versions each.
    assert all(chain.version == before[chain.id] + 4 for chain in touched)


def test_a_hung_node_is_dropped_after_silence_and_returns(
    cluster: LocalCluster, watcher: RoutingWatcher
) -> None:
    time.sleep(2.2)  # the manager's restraint after its start
    began = time.monotonic()
    cluster.kill("node-3", number=signal.SIGSTOP)
    wait_for(watcher, serves_without(3))
    assert 1.5 < time.monotonic() - began < 4.0
    cluster.kill("node-3", number=signal.SIGCONT)
    wait_for(watcher, is_whole)


def test_a_killed_manager_stops_nothing_and_comes_back(
    cluster: LocalCluster, watcher: RoutingWatcher
) -> None:
    before = watcher.routing()
    cluster.kill("manager")
    time.sleep(1.0)
    assert watcher.routing() == before
    assert [processes.is_running(p) for p in cluster.file.processes] == [False, True, True, True]
    cluster.up()
    after = wait_for(watcher, lambda routing: routing.epoch > before.epoch)
    assert [c.version for c in after.chains] == [c.version for c in before.chains]


def test_manager_and_node_killed_together_the_node_is_found_gone(
    cluster: LocalCluster, watcher: RoutingWatcher
) -> None:
    """The new manager has never heard the dead node: it asks its liveness port, and a peer does."""
    cluster.kill("manager", "node-2")
    cluster.start("manager")
    began = time.monotonic()
    wait_for(watcher, serves_without(2))
    assert time.monotonic() - began < 3.0
    log = cluster.log("manager").read_text()
    assert "liveness port of node 2: REFUSED" in log


def test_everything_killed_comes_back_by_itself(
    cluster: LocalCluster, watcher: RoutingWatcher
) -> None:
    url = cluster.url
    cluster.kill()
    began = time.monotonic()
    cluster.up()
    assert time.monotonic() - began < 5.0
    assert cluster.url == url
    wait_for(watcher, is_whole)


def test_up_is_idempotent_and_down_stops_all(cluster: LocalCluster) -> None:
    before = cluster.file
    assert cluster.up() == before
    assert len(cluster.down()) == 4
    assert not any(processes.is_running(p) for p in before.processes)
    assert cluster.down() == []
    assert cluster.up().url == before.url


def test_daemons_are_detached_and_local(cluster: LocalCluster) -> None:
    for process in cluster.file.processes:
        assert os.getsid(process.pid) == process.pid
        links = {
            number: os.readlink(f"/proc/{process.pid}/fd/{number}") for number in ("0", "1", "2")
        }
        assert links["0"] == "/dev/null"
        assert links["1"] == links["2"] == str(cluster.log(process.name))
    listening = subprocess.run(
        [
            sys.executable,
            "-c",
            "import psutil; print([c.laddr.ip for c in psutil.net_connections()"
            " if c.status == 'LISTEN' and c.pid in "
            + str({p.pid for p in cluster.file.processes})
            + "])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    addresses = json.loads(listening.stdout.replace("'", '"'))
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}


def test_daemons_of_an_owner_end_with_it(tmp_path: Path) -> None:
    script = (
        "import os, sys, signal; from pathlib import Path\n"
        "from deploy.local import LocalCluster, Programs\n"
        f"c = LocalCluster(Path({str(tmp_path / 'c')!r}), owner=os.getpid(), "
        f"programs=Programs(*{tuple(FAKES)!r}))\n"
        "c.up(nodes=1); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    left = LocalCluster(tmp_path / "c").file.processes
    assert processes.wait_ended(left, 5.0) == []


def test_a_daemon_that_cannot_start_ends_up_with_its_reason(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", owner=os.getpid(), programs=FAKES)
    cluster.up(nodes=1)
    cluster.down()
    (tmp_path / "c" / "node-1" / "node.json").write_text("{}")
    with pytest.raises(OSError, match=r"node-1 did not start: .*node\.json is damaged"):
        cluster.up()
    assert not any(processes.is_running(p) for p in cluster.file.processes)


# The commands


def fs3(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_status_and_health_have_their_keys(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--dir", str(cluster.directory))
    code, out, _ = fs3(capsys, "status", "--json", *where)
    status = json.loads(out)
    assert code == 0
    assert {"healthy", "nodes", "chains", "version", "url"} <= set(status)
    assert (status["healthy"], len(status["nodes"]), len(status["chains"])) == (True, 3, 12)
    assert status["url"] == cluster.url
    assert [node["id"] for node in status["nodes"]] == [1, 2, 3]
    code, out, _ = fs3(capsys, "health", "--json", *where)
    assert (code, json.loads(out)["healthy"]) == (0, True)
    assert fs3(capsys, "health", "--url", cluster.url)[1].splitlines()[-1] == "healthy"


def test_health_names_a_dead_node_and_exits_1(
    cluster: LocalCluster, watcher: RoutingWatcher, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.kill("node-2")
    wait_for(watcher, serves_without(2))
    code, out, _ = fs3(capsys, "health", "--json", "--dir", str(cluster.directory))
    (error,) = [f for f in json.loads(out)["findings"] if f["severity"] == "error"]
    assert code == 1
    assert set(error) == {"severity", "what", "cause", "consequence", "next"}
    assert "node 2" in error["what"]
    assert "2:OFFLINE" in fs3(capsys, "status", "--dir", str(cluster.directory))[1]


def test_commands_that_reach_nothing_say_what_to_do_and_exit_2(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.down()
    where = ("--dir", str(cluster.directory))
    for arguments, remedy in [
        (("status", *where), f"fs3 up --dir {cluster.directory}"),
        (("health", *where), f"fs3 up --dir {cluster.directory}"),
        (("health", "--dir", str(tmp_path / "none")), "no cluster in"),
        (("status", "--url", "fs3://127.0.0.1:1"), "check the URL"),
        (("status", "--url", "nonsense"), "write fs3://HOST:PORT"),
    ]:
        code, out, err = fs3(capsys, *arguments)
        assert (code, out) == (2, "")
        assert remedy in err
        assert len(err.splitlines()) == 1
