"""The command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from smallpond.cli import main

SCRIPT = """
import sys
import smallpond
sp = smallpond.init()
count = int(sys.argv[1])

def loud(row):
    print("row", row["item"])
    return {"x": 10 // row["item"]}

print("SUM", sum(row["x"] for row in sp.from_items(list(range(count, 3))).map(loud).take_all()))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(SCRIPT)
    return path


def submit(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = ["--data-root", str(script.parent / "data")]
    command = [sys.executable, "-c", "from smallpond.cli import main; main()", "submit"]
    return subprocess.run(
        [*command, *root, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_script_is_a_job_with_state_and_logs(script: Path) -> None:
    done = submit(script, "--job-id", "good", str(script), "1")
    assert done.returncode == 0, done.stderr
    assert "SUM 15" in done.stdout
    assert submit(script, "--job-id", "bad", str(script), "0").returncode != 0
    data = str(script.parent / "data")
    listed = CliRunner().invoke(main, ["jobs", "ls", "--data-root", data, "--json"])
    states = {job["id"]: job["state"] for job in json.loads(listed.output)}
    assert states == {"good": "success", "bad": "failure"}
    logs = CliRunner().invoke(main, ["jobs", "logs", "--data-root", data, "good"])
    assert "row 1\nrow 2" in logs.output
    missing = CliRunner().invoke(main, ["jobs", "logs", "--data-root", data, "none"])
    assert missing.exit_code == 1
    assert "no job none" in missing.output
