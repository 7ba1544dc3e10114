"""Daemons of a local cluster: start them detached, know them again, stop them.

A process is known by its pid together with its start time, so that a recycled pid is never taken
for it, and together with the boot of the host, since start times are counted from there.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import fs3
from fs3.config.cluster import Process
from fs3.runtime import host

LOG_BYTES_MAX: Final = 16 << 20
"""A longer log is moved to `NAME.log.1` when its daemon starts."""
LAST_LINES_BYTES: Final = 4096


def start(
    name: str, module: str, configuration: Path, log: Path, *, owner: int | None = None
) -> Process:
    """Starts `python -m MODULE CONFIGURATION`, detached from this process and its descriptors.

    Args:
        owner: pid of a process that the daemon must not outlive.
    """
    command = [sys.executable, "-P", "-m", module, str(configuration)]
    if owner is not None:
        command += ["--owner", str(owner)]
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_name(log.name + ".1"))
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=_environment(),
            start_new_session=True,
        )
    ticks = host.start_ticks(child.pid)
    _forget(child)
    return Process(name, child.pid, ticks or 0, host.boot_id())


def is_running(process: Process) -> bool:
    return (
        process.pid > 0
        and process.boot_id == host.boot_id()
        and host.start_ticks(process.pid) == process.start_ticks
    )


def send(process: Process, number: signal.Signals) -> None:
    """Signals the process if it is still the same one.

    Raises:
        PermissionError: it belongs to another user.
    """
    try:
        # The descriptor stands for the process even if its pid is recycled in this moment.
        descriptor = os.pidfd_open(process.pid) if process.pid else None
    except ProcessLookupError:
        return
    if descriptor is None:
        return
    try:
        if is_running(process):
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def wait_ended(processes: Iterable[Process], timeout_s: float) -> list[Process]:
    """Waits until none of them runs; those that still do."""
    deadline = time.monotonic() + timeout_s
    running = [p for p in processes if is_running(p)]
    while running and time.monotonic() < deadline:
        _wait_one(running[0], deadline - time.monotonic())
        running = [p for p in running if is_running(p)]
    return running


def last_line(log: Path, since: int) -> str:
    """The last line that was logged after the first `since` bytes."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - LAST_LINES_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _wait_one(process: Process, timeout_s: float) -> None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        select.select([descriptor], [], [], max(timeout_s, 0))
    finally:
        os.close(descriptor)


def _environment() -> dict[str, str]:
    """Ours, and the daemons import the very fs3 that runs here."""
    root = str(Path(fs3.__file__).parents[1])
    paths: Sequence[str] = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _forget(child: "subprocess.Popen[bytes]") -> None:
    """The daemon outlives us; nobody waits for this object."""
    child.returncode = 0
