"""The two buffers of a file object: bytes not yet sent, and bytes read ahead.

Both are one contiguous range of the file in memory that is reused, because fresh memory costs a
page fault for every 4 KiB.
"""

from typing import Final

import numpy as np

_FIRST_BYTES: Final = 64 * 1024


class WriteBuffer:
    """Dirty bytes [start, end) of the file, at most `capacity` up to a chunk boundary.

    Runs end on chunk boundaries, so that a file written in sequence is sent in whole chunks and the
    storage never has to merge.
    """

    def __init__(self, capacity: int, chunk_size: int) -> None:
        self._capacity = max(capacity, chunk_size)
        self._chunk_size = chunk_size
        self._memory = np.empty(0, np.uint8)
        self._spare = self._memory
        self.start = 0
        self.size = 0

    @property
    def end(self) -> int:
        return self.start + self.size

    def room(self, position: int) -> int:
        """How many bytes at `position` can be taken; 0 when the buffer must be sent first."""
        if self.size and not self.start <= position <= self.end:
            return 0
        return self._limit(self.start if self.size else position) - position

    def put(self, position: int, source: memoryview) -> None:
        """Takes bytes; `source` is at most `room(position)` long."""
        if not self.size:
            self.start = position
        begin = position - self.start
        end = begin + len(source)
        self._grow(end)
        self._memory[begin:end] = np.frombuffer(source, np.uint8)
        self.size = max(self.size, end)

    def whole_chunks(self, position: int, size: int) -> int:
        """How much of `size` bytes at `position` ends on a chunk boundary."""
        return max(size - (position + size) % self._chunk_size, 0)

    def overlaps(self, position: int, size: int) -> bool:
        return self.size > 0 and position < self.end and position + size > self.start

    def take(self) -> tuple[int, memoryview]:
        """(start, bytes) and empties the buffer; the memory goes with them."""
        start, taken = self.start, self._memory.data[: self.size]
        self._memory, self._spare = self._spare, np.empty(0, np.uint8)
        self.size = 0
        return start, taken

    def give_back(self, taken: memoryview) -> None:
        """Returns memory whose bytes have been sent, for reuse."""
        memory = taken.obj
        assert isinstance(memory, np.ndarray), "only what `take` gave comes back"
        if self.size or len(memory) <= len(self._memory):
            self._spare = memory
        else:
            self._memory = memory

    def discard(self) -> None:
        self.size = 0

    def _limit(self, start: int) -> int:
        return start - start % self._chunk_size + self._capacity

    def _grow(self, size: int) -> None:
        if size <= len(self._memory):
            return
        grown = max(size, 2 * len(self._memory), _FIRST_BYTES)
        memory = np.empty(min(grown, max(self._capacity, size)), np.uint8)
        memory[: self.size] = self._memory[: self.size]
        self._memory = memory


class ReadWindow:
    """Bytes [start, start + size) of the file, read before they were asked for."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self.start = 0
        self.size = 0

    def rest(self, position: int) -> int:
        """How many bytes the window holds from `position` on."""
        begin = position - self.start
        return self.size - begin if 0 <= begin < self.size else 0

    def copy_to(self, position: int, into: memoryview) -> int:
        """Copies what the window holds at `position`; the number of bytes."""
        count = min(self.rest(position), len(into))
        begin = position - self.start
        into[:count] = self._memory.data[begin : begin + count] if count else b""
        return count

    def view(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes of the window at `position`, without a copy."""
        count = min(self.rest(position), size)
        begin = position - self.start
        return self._memory.data[begin : begin + count] if count else memoryview(b"")

    def space(self, start: int, size: int) -> memoryview:
        """Empties the window and gives memory to fill; then set `size`."""
        if len(self._memory) < size:
            self._memory = np.empty(size, np.uint8)
        self.start = start
        self.size = 0
        return self._memory.data[:size]

    def discard(self) -> None:
        self.size = 0
