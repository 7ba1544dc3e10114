"""Stage "failure": kills a storage node with SIGKILL in the middle of reads and writes.

Several threads write blocks and read earlier ones back, over files with small chunks that lie on
every chain, so that at any moment operations are in flight on the victim.
None may fail: the client retries on the remaining replicas. Verified by the client's count of
retried operations, which must have grown since the kill, and by reading every acknowledged block
back afterwards.
"""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from deploy.demo.stage import Advance, Scale, StageFailed, require
from fs3 import File, FileSystem
from fs3.units import KIB

THREADS: Final = 4
CHUNK_BYTES: Final = 64 * KIB
BLOCK_BYTES: Final = 4 * CHUNK_BYTES
"""Four chunks on different chains: nearly every operation has to do with every node."""

BLOCKS_PER_FILE: Final = 12
READS_PER_WRITE: Final = 2
STUCK_AFTER_S: Final = 20.0
"""When operations have not gone on so long after the kill, the stage has failed."""

POLL_S: Final = 0.05

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Survived:
    """What the kill cost.

    Attributes:
        stall_s: the longest that one operation took from the kill on.
        usual_s: the longest that one operation took before it.
        operations: all reads and writes; none failed.
        retried_ops: chunk operations that the client sent again since the kill.
    """

    killed_node: str
    stall_s: float
    usual_s: float
    operations: int
    retried_ops: int


def traffic_steps(scale: Scale) -> int:
    """How often `survive` advances."""
    return round((scale.traffic_before_s + scale.traffic_after_s) / POLL_S)


@dataclass(frozen=True, slots=True)
class Victim:
    """A storage node, and the way to kill it."""

    name: str
    kill: Callable[[], None]


@dataclass(slots=True)
class Worker:
    """One thread's file: its acknowledged blocks, and when each operation began and ended."""

    filesystem: FileSystem
    path: str
    blocks: dict[int, bytes] = field(default_factory=dict)
    timings: list[tuple[float, float]] = field(default_factory=list)
    error: Exception | None = None

    def run(self, stop: threading.Event) -> None:
        try:
            with self.filesystem.open(self.path, "w+b", 0) as file:
                for index in itertools.cycle(range(BLOCKS_PER_FILE)):
                    if stop.is_set():
                        return
                    self._write(file, index)
                    for known in random.choices(list(self.blocks), k=READS_PER_WRITE):
                        self._read(file, known)
        except Exception as error:
            self.error = error

    def verify(self) -> None:
        """Reads every acknowledged block back."""
        with self.filesystem.open(self.path, "rb") as file:
            for index in self.blocks:
                self._read(file, index)

    def _write(self, file: File, index: int) -> None:
        content = os.urandom(BLOCK_BYTES)
        self._timed(lambda: file.write_at(index * BLOCK_BYTES, content))
        self.blocks[index] = content

    def _read(self, file: File, index: int) -> None:
        found = self._timed(lambda: file.read_at(index * BLOCK_BYTES, BLOCK_BYTES))
        require(found == self.blocks[index], f"block {index} of {self.path} is not as written")

    def _timed(self, operation: Callable[[], T]) -> T:
        began = time.monotonic()
        result = operation()
        self.timings.append((began, time.monotonic()))
        return result


def survive(
    filesystem: FileSystem,
    directory: str,
    chains: int,
    victim: Victim,
    scale: Scale,
    advance: Advance,
) -> Survived:
    """Kills `victim` under load; advances `traffic_steps` times.

    Args:
        chains: of the cluster; every file lies on all of them.
    """
    filesystem.makedirs(directory, exist_ok=True)
    filesystem.set_layout(directory, chunk_size=CHUNK_BYTES, stripe=chains)
    workers = [Worker(filesystem, f"{directory}/load-{i}") for i in range(THREADS)]
    stop = threading.Event()
    threads = [threading.Thread(target=worker.run, args=(stop,)) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        _wait(workers, time.monotonic() + scale.traffic_before_s, advance)
        retried = filesystem.counters()["retried_ops"]
        killed_at = time.monotonic()
        victim.kill()
        _wait_through(workers, killed_at, scale.traffic_after_s, advance)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return _judge(filesystem, workers, victim, killed_at, retried)


def _judge(
    filesystem: FileSystem,
    workers: Sequence[Worker],
    victim: Victim,
    killed_at: float,
    retried_before: int,
) -> Survived:
    _raise_errors(workers)
    retried = filesystem.counters()["retried_ops"] - retried_before
    require(retried > 0, f"no operation was in flight on {victim.name} when it was killed")
    timings = [timing for worker in workers for timing in worker.timings]
    for worker in workers:
        worker.verify()
    return Survived(
        killed_node=victim.name,
        stall_s=max(end - begin for begin, end in timings if end >= killed_at),
        usual_s=max(end - begin for begin, end in timings if end < killed_at),
        operations=len(timings),
        retried_ops=retried,
    )


def _wait(workers: Sequence[Worker], until: float, advance: Advance) -> None:
    while (left := until - time.monotonic()) > 0:
        _raise_errors(workers)
        time.sleep(min(POLL_S, left))
        advance(1)


def _wait_through(
    workers: Sequence[Worker], killed_at: float, at_least_s: float, advance: Advance
) -> None:
    """Waits until every worker has finished an operation that it began after the kill."""
    _wait(workers, killed_at + at_least_s, advance)
    while not all(worker.timings[-1][0] > killed_at for worker in workers):
        _raise_errors(workers)
        if time.monotonic() > killed_at + STUCK_AFTER_S:
            raise StageFailed(f"operations still hang {STUCK_AFTER_S:g} s after the kill")
        time.sleep(POLL_S)


def _raise_errors(workers: Sequence[Worker]) -> None:
    for worker in workers:
        if worker.error is not None:
            raise StageFailed(f"an operation failed: {worker.error}") from worker.error
