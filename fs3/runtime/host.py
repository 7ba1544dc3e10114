"""What a process can know of its host and of other processes on it (Linux)."""

import os
import time
from pathlib import Path


def boot_id() -> str:
    """Changes with every boot of the host: while it stays, the page cache has survived."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def wall_clock_ns() -> int:
    """Nanoseconds since 1970, for records and people; nothing is decided by it."""
    return time.time_ns()


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is no such process. One
    that has ended and waits for its parent still has its start time."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; the start time is field 22.
    return int(stat.rpartition(")")[2].split()[19])


def own_start_ticks() -> int:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return ticks
