"""The demo itself: what it promises when it ends well, is interrupted, or is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

COMMAND = [sys.executable, "-m", "deploy.demo", "--quick", "--json"]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Where the demo works; no daemon of it may be left at the end."""
    yield tmp_path / "demo"
    deadline = time.monotonic() + 10
    while (left := daemons(tmp_path / "demo")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, "daemons were left behind"


def daemons(directory: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if any(word.startswith(f"{directory}/") for word in words):
            found.append(process)
    return found


def start(directory: Path) -> subprocess.Popen[str]:
    """The demo, once its cluster runs."""
    demo = subprocess.Popen(
        [*COMMAND, "--dir", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(daemons(directory)) < 4:
        assert demo.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return demo


def test_the_demo_does_and_verifies_everything(directory: Path) -> None:
    result = subprocess.run(
        [*COMMAND, "--dir", str(directory)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["ok"] is True
    names = ["cluster", "ingest", "job", "train", "checkpoint", "failure", "restore"]
    assert [stage["name"] for stage in report["stages"]] == names
    assert report["files"] > report["rows"] * 0.9 > 100
    assert report["bytes"] > 1_000_000
    assert report["samples_per_s"] > 0
    assert report["retried_ops"] > 0
    assert report["loss_after"] < report["loss_before"]
    assert report["killed_node"].startswith("node-")
    assert report["url"].startswith("fs3://127.0.0.1:")
    assert 0 < report["stall_s"] < 5
    assert not directory.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_and_removes_everything(
    directory: Path, number: signal.Signals
) -> None:
    demo = start(directory)
    os.killpg(demo.pid, number)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert json.loads(output.splitlines()[-1])["ok"] is False
    assert not directory.exists()


def test_killed_it_takes_its_daemons_along(directory: Path) -> None:
    demo = start(directory)
    demo.kill()
    demo.communicate(timeout=60)


@pytest.mark.slow
def test_kept_it_can_be_looked_at(directory: Path) -> None:
    subprocess.run(
        [*COMMAND, "--keep", "--dir", str(directory)],
        capture_output=True,
        timeout=280,
        check=True,
    )
    fs3 = [sys.executable, "-m", "fs3.cli.main", "--dir", str(directory / "cluster")]
    try:
        listed = subprocess.run(
            [*fs3, "ls", "/demo"], capture_output=True, text=True, timeout=60, check=True
        )
        assert "checkpoint.safetensors" in listed.stdout
    finally:
        subprocess.run([*fs3, "down"], timeout=60, check=True)
