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
    """When the process started, in clock ticks since boot; None when there is no such process or it
    has ended and only waits for its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; state is field 3, the start time field 22.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def own_start_ticks() -> int:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return ticks
