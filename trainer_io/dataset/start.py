"""Where DataLoader workers begin an epoch, told by the main process.

Workers are copies of the data set made when they start, and persistent ones outlive the epoch. So
the position is in shared memory: the main process writes it before an epoch, workers read it when
they begin one, and no worker is a step late or in the wrong epoch.
"""

from multiprocessing import RawArray
from multiprocessing.context import get_spawning_popen
from typing import Any

from trainer_io.core.cursor import Cursor


class SharedStart:
    """A cursor in memory that forked and spawned workers share. Plain pickling copies it."""

    def __init__(self, cursor: Cursor) -> None:
        self._numbers: Any = RawArray("q", [cursor.epoch, cursor.sample_in_epoch])

    def set(self, cursor: Cursor) -> None:
        self._numbers[:] = [cursor.epoch, cursor.sample_in_epoch]

    def get(self) -> Cursor:
        return Cursor(*self._numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return SharedStart, (self.get(),)
        return _attach, (self._numbers,)


def _attach(numbers: Any) -> SharedStart:
    start = SharedStart.__new__(SharedStart)
    start._numbers = numbers
    return start
