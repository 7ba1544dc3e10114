"""What a running task knows about itself: its place, its budget and its sources of randomness."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator

import numpy as np

from smallpond.operators.engine import EnginePool, SqlEngine


class StepFailed(Exception):
    """Carries the original exception, and the step and row it came from, out of nested engines."""

    def __init__(self, label: str, detail: str, original: BaseException) -> None:
        super().__init__(label)
        self.label = label
        self.detail = detail
        self.original = original


@dataclasses.dataclass
class TaskContext:
    """One attempt at one partition of one stage.

    Attributes:
        partition, partitions: which of how many.
        attempt: unique among the attempts at this partition.
        seed: repeatable randomness; the same for every attempt at this partition.
        threads, memory_bytes: what the scheduler granted.
        pool: where DuckDB instances come from.
        output_path: path that no other attempt uses; no file is there yet.
        inline_bytes_max: output up to this size travels in the result message.
        failure: set by the step that failed, because DuckDB replaces the exceptions of Python code
            it calls by its own.
    """

    partition: int
    partitions: int
    attempt: int
    seed: int
    threads: int
    memory_bytes: int
    pool: EnginePool
    output_path: str
    inline_bytes_max: int
    engine_share: float = 1.0
    failure: StepFailed | None = None
    engines: list[SqlEngine] = dataclasses.field(default_factory=list)
    _dice: dict[str, np.random.Generator] = dataclasses.field(default_factory=dict)

    def new_engine(self) -> SqlEngine:
        """A DuckDB with this pipeline's share of the memory, for as long as the task runs."""
        engine = self.pool.take(self.threads, int(self.memory_bytes * self.engine_share))
        self.engines.append(engine)
        return engine

    def seed_of(self, purpose: object) -> int:
        """A 63-bit seed for one purpose in this partition."""
        text = f"{self.seed}/{self.partition}/{purpose}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1

    def dice(self, purpose: str) -> np.random.Generator:
        """The generator of one purpose; it goes on where its last user left it."""
        if purpose not in self._dice:
            self._dice[purpose] = np.random.Generator(np.random.Philox(self.seed_of(purpose)))
        return self._dice[purpose]

    @contextlib.contextmanager
    def step(self, label: str, detail: str) -> Iterator[None]:
        """Remember the first failure inside as that of the named step."""
        try:
            yield
        except StepFailed:
            raise
        except Exception as error:
            if self.failure is None:
                self.failure = StepFailed(label, detail, error)
            raise self.failure from error

    def close(self, went_well: bool) -> None:
        """End the engines; those of a task that went well are used again."""
        while self.engines:
            engine = self.engines.pop()
            if went_well:
                self.pool.give_back(engine)
            else:
                engine.close()
                engine.instance.close()
