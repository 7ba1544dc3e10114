"""Shared by all tests: every skip must name something that is really missing."""

import os
import re
import signal
import tomllib
from pathlib import Path

import pytest

ALLOWED = [
    re.compile(entry["reason"])
    for entry in tomllib.loads((Path(__file__).parent / "skips.toml").read_text())["skip"]
]
_unexpected: list[str] = []


def pytest_configure() -> None:
    # A run started in the background inherits ignored interrupts and would pass them on to every
    # process it starts; tests of Ctrl-C need them as in a terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(pattern.search(reason) for pattern in ALLOWED):
        _unexpected.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _unexpected and os.environ.get("CI") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _unexpected:
        terminalreporter.write_line(f"skip that tests/skips.toml does not allow: {line}", red=True)
