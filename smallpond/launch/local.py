"""The local launcher: worker processes on this machine, started warm and ended with the driver."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

from smallpond.core.events import (
    HostId,
    HostJoined,
    WorkerId,
    WorkerJoined,
    WorkerLost,
    WorkerStartFailed,
)
from smallpond.execution.messages import Ready, receive, send
from smallpond.launch.launcher import FromWorker, Notice

_HOST = HostId("local")
_LOG_TAIL_BYTES = 2000
# The interpreter gets the driver's import path before anything is imported; -P keeps the current
# directory out of it unless the driver has it there too.
_BOOT = (
    "import sys, json; a = sys.argv; sys.path[:] = json.loads(a[3]); "
    "from smallpond.execution.worker import main; main(int(a[1]), int(a[2]), a[4])"
)


class LocalLauncher:
    """Workers are child processes, each with a socket pair and a reader thread."""

    def __init__(
        self,
        workers_max: int,
        cpus: int,
        memory_bytes: int,
        log_directory: str | None,
        temp_directory: str,
    ) -> None:
        self._host = HostJoined(_HOST, cpus, 0, memory_bytes, workers_max, workers_warm=1)
        self._log_directory = log_directory
        self._temp_directory = temp_directory
        self._ids = itertools.count(1)
        self._processes: dict[WorkerId, subprocess.Popen[bytes]] = {}
        self._sockets: dict[WorkerId, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        self._post: Callable[[Notice], None] = _not_open

    def open(self, post: Callable[[Notice], None]) -> None:
        self._post = post
        post(self._host)

    def start(self, host: str) -> None:
        del host
        worker = WorkerId(next(self._ids))
        mine, theirs = socket.socketpair()
        log = self._log_path(worker)
        try:
            process = self._spawn(theirs, log, self._scratch(worker))
        except OSError as error:
            mine.close()
            self._post(WorkerStartFailed(_HOST, str(error)))
            return
        finally:
            theirs.close()
        self._processes[worker] = process
        self._sockets[worker] = mine
        thread = threading.Thread(
            target=self._listen, args=(worker, process, mine, log), name=f"worker-{worker}"
        )
        thread.daemon = True
        self._threads.append(thread)
        thread.start()

    def send(self, worker: WorkerId, message: object) -> None:
        peer = self._sockets.get(worker)
        if peer is not None:
            with contextlib.suppress(OSError):
                send(peer, message)

    def stop(self, worker: WorkerId) -> None:
        self._processes[worker].kill()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for thread in self._threads:
            thread.join()

    def _scratch(self, worker: WorkerId) -> str:
        return os.path.join(self._temp_directory, f"worker-{worker}")

    def _spawn(
        self, theirs: socket.socket, log: str | None, scratch: str
    ) -> subprocess.Popen[bytes]:
        number = str(theirs.fileno())
        paths = json.dumps([os.path.abspath(path) if path == "" else path for path in sys.path])
        with open(log or os.devnull, "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, number, str(os.getpid()), paths, scratch],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                env={"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **os.environ},
                start_new_session=True,  # Ctrl-C is the driver's to handle
            )

    def _log_path(self, worker: WorkerId) -> str | None:
        if self._log_directory is None:
            return None
        return os.path.join(self._log_directory, f"worker-{worker}.log")

    def _listen(
        self,
        worker: WorkerId,
        process: subprocess.Popen[bytes],
        peer: socket.socket,
        log: str | None,
    ) -> None:
        """Pass on what a worker says until it is gone, then say how it went."""
        has_joined = False
        while (message := receive(peer)) is not None:
            if isinstance(message, Ready):
                has_joined = True
                self._post(WorkerJoined(worker, _HOST))
            else:
                self._post(FromWorker(worker, message))
        reason = _how_it_ended(process.wait())
        peer.close()
        shutil.rmtree(self._scratch(worker), ignore_errors=True)
        if has_joined:
            self._post(WorkerLost(worker, reason))
        else:
            self._post(WorkerStartFailed(_HOST, f"{reason}: {_tail(log)}"))


def _not_open(notice: Notice) -> None:
    raise AssertionError(f"the launcher is not open, but {notice}")


def _how_it_ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, as the kernel does when memory runs out"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"


def _tail(log: str | None) -> str:
    if log is None:
        return "no log"
    with contextlib.suppress(OSError), open(log, "rb") as file:
        return file.read()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
    return "no log"
