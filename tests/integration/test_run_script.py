"""`./run` as a person meets it: its words, and one clear line where it cannot go on."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = ("setup", "demo", "test", "bench", "sim", "lint", "docs", "cluster", "ci")


def run(
    directory: Path, *arguments: str, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    return subprocess.run(
        [directory / "run", *arguments],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A tree that was never set up."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("run", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout / name)
    return checkout


def stub(directory: Path, name: str, script: str) -> None:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_alone_it_lists_its_words() -> None:
    result = run(ROOT)
    assert result.returncode == 0
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")]
    assert set(WORDS) <= set(listed)


def test_unknown_word() -> None:
    result = run(ROOT, "dance")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "run: unknown word 'dance'"


def test_unknown_benchmark() -> None:
    result = run(ROOT, "bench", "juggling")
    assert (result.returncode, result.stdout) == (2, "")
    assert "no benchmark 'juggling'; ./run bench lists them" in result.stderr
    listing = run(ROOT, "bench")
    assert listing.returncode == 2
    assert {"io", "rpc", "smallpond"} <= set(listing.stderr.split())


def test_missing_system_package_for_an_ordinary_user(checkout: Path, tmp_path: Path) -> None:
    stubs = tmp_path / "stubs"
    stub(stubs, "dpkg-query", 'case "$*" in *liburing-dev*) exit 1;; esac; echo "ok installed"')
    stub(stubs, "id", "echo 1000")
    result = run(checkout, "setup", path=stubs)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == (
        "run: missing system packages; run once as root: apt-get install -y liburing-dev"
    )
    assert result.stdout == "", "set-up talks on standard error only"


def test_missing_python(checkout: Path, tmp_path: Path) -> None:
    stubs = tmp_path / "stubs"
    stub(stubs, "dpkg-query", 'echo "ok installed"')
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        stub(stubs, name, "exit 1")
    result = run(checkout, "setup", path=stubs)
    assert result.returncode == 2
    assert "no Python 3.11 or newer found; install it" in result.stderr
