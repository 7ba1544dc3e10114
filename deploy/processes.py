"""Daemons of a local cluster: start them detached, know them again, stop them.

A process is known by its pid together with its start time, so that a recycled pid is never taken
for it, and together with the boot of the host, since start times are counted from there.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
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
    """Until its last thread is gone, and with it its ports and locks."""
    with _handle(process) as handle:
        return handle is not None and not _has_ended(handle, 0)


def send(process: Process, number: signal.Signals) -> None:
    """Signals the process if it is still the same one.

    Raises:
        PermissionError: it belongs to another user.
    """
    with _handle(process) as handle, contextlib.suppress(ProcessLookupError):
        if handle is not None:
            signal.pidfd_send_signal(handle, number)


def wait_ended(processes: Iterable[Process], timeout_s: float) -> list[Process]:
    """Waits until none of them runs; those that still do."""
    deadline = time.monotonic() + timeout_s
    running = []
    for process in processes:
        with _handle(process) as handle:
            if handle is not None and not _has_ended(handle, deadline - time.monotonic()):
                running.append(process)
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


@contextlib.contextmanager
def _handle(process: Process) -> Iterator[int | None]:
    """A descriptor that stands for this very process, whoever has its pid later; None when gone."""
    try:
        handle = os.pidfd_open(process.pid) if process.boot_id == host.boot_id() else None
    except ProcessLookupError:
        handle = None
    try:
        is_same = handle is not None and host.start_ticks(process.pid) == process.start_ticks
        yield handle if is_same else None
    finally:
        if handle is not None:
            os.close(handle)


def _has_ended(handle: int, timeout_s: float) -> bool:
    return bool(select.select([handle], [], [], max(timeout_s, 0))[0])


def _environment() -> dict[str, str]:
    """Ours, and the daemons import the very fs3 that runs here."""
    root = str(Path(fs3.__file__).parents[1])
    paths: Sequence[str] = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _forget(child: "subprocess.Popen[bytes]") -> None:
    """The daemon outlives us; nobody waits for this object."""
    child.returncode = 0
