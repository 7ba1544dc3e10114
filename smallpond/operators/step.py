"""The interfaces that the operators of a pipeline implement."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from smallpond.io.segments import Segment
from smallpond.operators.rows import Rows
from smallpond.operators.task import TaskContext


class Step(Protocol):
    """Turns the rows of one partition of each input into the rows of that partition."""

    def apply(self, inputs: Sequence[Rows], task: TaskContext, label: str) -> Rows: ...


@dataclasses.dataclass(frozen=True)
class TaskOutput:
    """What a finished task says about the rows it wrote.

    Attributes:
        parts: segments for each partition of the output; one entry unless the sink splits.
        schema: serialized schema of all of them.
        rows, size_bytes: totals.
        written: final file names relative to the output directory, for sinks that write files.
    """

    parts: tuple[tuple[Segment, ...], ...]
    schema: bytes
    rows: int
    size_bytes: int
    written: tuple[str, ...] = ()

    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


class Sink(Protocol):
    """Ends a task: takes its rows to where later tasks, or the user, find them."""

    def consume(self, rows: Rows, task: TaskContext, label: str) -> TaskOutput: ...
