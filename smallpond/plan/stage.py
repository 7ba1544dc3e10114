"""The physical plan: stages of equal tasks, and what each task reads.

A stage runs one pipeline, a tree of steps over its inputs that ends in a sink, once per partition.
Inputs are *selections* from what earlier stages stored or from files; they are resolved to segments
and pieces when a task starts, because only then the row counts of earlier stages are known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from smallpond.io.segments import Segment
from smallpond.operators.pieces import FilePiece
from smallpond.operators.step import Sink, Step, TaskOutput
from smallpond.plan.relation import Resources, Scan

StageId = int


@dataclasses.dataclass(frozen=True)
class StoredInput:
    """Resolved: segments and the schema their rows are brought to."""

    segments: tuple[Segment, ...]
    schema: bytes


@dataclasses.dataclass(frozen=True)
class ScanInput:
    """Resolved: pieces of files, read by a scan."""

    scan: Scan
    pieces: tuple[FilePiece, ...]


ResolvedInput = StoredInput | ScanInput
Outputs = Mapping[StageId, Sequence[TaskOutput | None]]


class Selection(Protocol):
    """What a task reads through one of its inputs."""

    @property
    def stages(self) -> tuple[StageId, ...]:
        """Stages whose outputs it needs."""

    @property
    def same_partition(self) -> bool:
        """True if the task of the same index of them is enough."""

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput: ...


@dataclasses.dataclass(frozen=True)
class Leaf:
    """Input `index` of the stage."""

    index: int


@dataclasses.dataclass(frozen=True)
class Apply:
    """A step over other nodes of the tree."""

    step: Step
    inputs: tuple[Leaf | Apply, ...]
    label: str


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """What every task of a stage does: the part that is pickled and sent to workers once."""

    root: Leaf | Apply
    sink: Sink
    label: str
    seed: int
    partitions: int


@dataclasses.dataclass(frozen=True)
class Stage:
    """Tasks that do the same to different partitions.

    Attributes:
        elastic: its tasks can use more threads than they ask for, with the same result.
    """

    id: StageId
    label: str
    partitions: int
    pipeline: Pipeline
    inputs: tuple[Selection, ...]
    resources: Resources
    elastic: bool
