"""Reads blocks of samples in a background thread, at most so many bytes ahead of the consumer.

The order of the samples is known in advance, so what is read ahead is exactly what will be asked
for. The bound counts every block from the start of its read until the consumer is done with it; one
block larger than the bound is still read, alone.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Block:
    """Samples that are read together, and the memory they take."""

    indices: npt.NDArray[np.int64]
    size_bytes: int


class ReadAhead(Generic[T]):
    """Iterates over the loaded blocks, in order. Close it, or use it as a context manager.

    Args:
        blocks: taken one by one, in the background.
        load: reads one block; its error is raised to the consumer in that block's place.
        bytes_max: bound of what is being read or waits.
    """

    def __init__(
        self, blocks: Iterable[Block], load: Callable[[Block], list[T]], bytes_max: int
    ) -> None:
        self._blocks = iter(blocks)
        self._load = load
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._ready: deque[tuple[Block, list[T]]] = deque()
        self._held_bytes = 0
        self._held_bytes_peak = 0
        self._error: BaseException | None = None
        self._finished = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="trainer-io-read", daemon=True)
        self._thread.start()

    @property
    def held_bytes_peak(self) -> int:
        """The most that was held at once."""
        return self._held_bytes_peak

    def __iter__(self) -> Iterator[list[T]]:
        while (item := self._take()) is not None:
            block, samples = item
            yield samples
            self._release(block)

    def close(self) -> None:
        """Stops reading and waits for the thread; a read in progress is finished first."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self) -> tuple[Block, list[T]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._finished)
            if self._ready:
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            return None

    def _release(self, block: Block) -> None:
        with self._changed:
            self._held_bytes -= block.size_bytes
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            for block in self._blocks:
                if not self._reserve(block):
                    break
                samples = self._load(block)
                with self._changed:
                    self._ready.append((block, samples))
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def _reserve(self, block: Block) -> bool:
        """Waits until the block fits; False when nobody wants it any more."""

        def fits() -> bool:
            return self._held_bytes == 0 or self._held_bytes + block.size_bytes <= self._bytes_max

        with self._changed:
            self._changed.wait_for(lambda: self._closed or fits())
            self._held_bytes += block.size_bytes
            self._held_bytes_peak = max(self._held_bytes_peak, self._held_bytes)
            return not self._closed
