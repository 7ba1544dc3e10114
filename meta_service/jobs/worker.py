"""A thread that takes one step of a job after the other."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from fs3.errors import Fs3Error

_log = logging.getLogger(__name__)


class Worker:
    """Args:
    name: of the thread, for logs.
    step: does a bounded piece of work and says how many seconds to wait before the next.
    pause_after_error_s: instead, when the step raised.
    """

    def __init__(self, name: str, step: Callable[[], float], pause_after_error_s: float) -> None:
        self._step: Final = step
        self._pause_after_error_s: Final = pause_after_error_s
        self._wake: Final = threading.Event()
        self._stopping: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def kick(self) -> None:
        """There is work: do not wait."""
        self._wake.set()

    def stop(self) -> None:
        """Waits for the step in progress."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            pause_s = self._guarded_step()
            if pause_s > 0 and not self._stopping.is_set():
                self._wake.wait(pause_s)

    def _guarded_step(self) -> float:
        try:
            return self._step()
        except Fs3Error as error:
            _log.warning("%s: %s", self._thread.name, error)
        except Exception:
            _log.exception("defect in job %s", self._thread.name)
        return self._pause_after_error_s
