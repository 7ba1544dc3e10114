"""What every service process does the same way: log, fail with one line, stop on a signal.

    def run(configuration: Path, stop: Stop) -> None: ...
    sys.exit(service.main("storage_node", run))

A service logs to standard error. It stops on SIGTERM or SIGINT, when something in it calls
`Stop.fail`, and, with `--owner PID`, when that process ends, however it ends: daemons that belong
to a foreground program never outlive it.
"""

import argparse
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fs3.errors import Fs3Error

log = logging.getLogger(__name__)

EXIT_CANNOT_RUN: Final = 2
LOG_FORMAT: Final = "%(asctime)s %(levelname).1s %(name)s: %(message)s"


class Stop:
    """When a service has to stop.

    Args:
        owner: pid of the process it must not outlive, None for none.

    Raises:
        ProcessLookupError: the owner is gone already.
    """

    def __init__(self, owner: int | None) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._owner = os.pidfd_open(owner) if owner is not None else None
        self.requested = threading.Event()
        self.error: BaseException | None = None
        self.starts_over = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.now())

    def now(self) -> None:
        """Safe to call from any thread and from signal handlers."""
        self.requested.set()
        os.write(self._write, b"\0")

    def fail(self, error: BaseException) -> None:
        """Stops because of `error`, which becomes the process's one-line message."""
        self.error = error
        self.now()

    def start_over(self) -> None:
        """Stops, and runs the same command again in this process."""
        self.starts_over = True
        self.now()

    def wait(self) -> None:
        """Returns when the service has to stop.

        Raises:
            BaseException: what `fail` was given.
        """
        watched = [self._read] + ([self._owner] if self._owner is not None else [])
        select.select(watched, [], [])
        if self.error is not None:
            raise self.error


def main(name: str, run: Callable[[Path, Stop], None]) -> int:
    """Runs a service by its command line; the exit code.

    Args:
        name: of the module, as in `python -m NAME`.
        run: starts the service, waits for `Stop`, stops it. Fs3Error ends it with one line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("configuration", type=Path, help="TOML file with its settings")
    parser.add_argument("--owner", type=int, help="stop when the process with this id ends")
    parser.add_argument("--verbose", action="store_true", help="log what is done in detail")
    arguments = parser.parse_args()
    level = logging.DEBUG if arguments.verbose else logging.INFO
    logging.basicConfig(stream=sys.stderr, level=level, format=LOG_FORMAT)
    try:
        stop = Stop(arguments.owner)
        run(arguments.configuration, stop)
    except (Fs3Error, ProcessLookupError) as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return EXIT_CANNOT_RUN
    if stop.starts_over:
        os.execv(sys.executable, sys.orig_argv)
    log.info("stopped")
    return 0
