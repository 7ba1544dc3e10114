"""The logical plan: relations made of other relations by an operator.

A relation is a description and never changes; data frames hold one each. Every relation has a
number of partitions, known without running anything, which is what lets the whole job be cut into
tasks before the first of them starts.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from smallpond.errors import PlanError
from smallpond.operators.pieces import FilePiece
from smallpond.operators.rows import Rows
from smallpond.operators.shuffle import Partitioning
from smallpond.operators.step import Step
from smallpond.operators.task import TaskContext

_numbers = itertools.count(1)


class Scan(Protocol):
    """A source that reads files."""

    @property
    def has_row_counts(self) -> bool:
        """True if the number of rows of a file is known without reading it."""

    def pieces(self) -> list[FilePiece]: ...

    def counted(self, pieces: Sequence[FilePiece]) -> list[FilePiece]: ...

    def rows(self, pieces: Sequence[FilePiece], task: TaskContext) -> Rows: ...


@dataclasses.dataclass(frozen=True)
class Literal:
    """Rows that the user's program holds in memory."""

    table: pa.Table


@dataclasses.dataclass(frozen=True)
class ByFiles:
    """Whole files (or outputs of tasks) dealt to `partitions` in order; no row moves."""

    partitions: int


@dataclasses.dataclass(frozen=True)
class ByRows:
    """Equal runs of rows; no row moves."""

    partitions: int


@dataclasses.dataclass(frozen=True)
class Union:
    """The partitions of all inputs, one after the other; no row moves."""


Operator = Scan | Literal | Step | ByFiles | ByRows | Union | Partitioning


@dataclasses.dataclass(frozen=True)
class Resources:
    """What one task of a relation asks for.

    Attributes:
        cpus: threads; more are granted while others are idle and the step can use them.
        gpus: may be fractional.
        memory_bytes: None for the task's fair share of the machine.
    """

    cpus: int = 1
    gpus: float = 0
    memory_bytes: int | None = None


class Relation:
    """One node of the logical plan.

    Attributes:
        label: what the user wrote, with file and line: how errors and progress name it.
        is_step: keeps the partitioning of its inputs, so it can run in the same task.
        is_shuffle: moves rows between partitions by their values.
        is_keyed: brings rows with equal keys into one partition.
        has_known_schema: the result's types do not depend on the data.
    """

    def __init__(
        self,
        operator: Operator,
        inputs: Sequence[Relation] = (),
        *,
        label: str,
        resources: Resources = Resources(),
        has_known_schema: bool = True,
    ) -> None:
        self.number = next(_numbers)
        self.operator = operator
        self.inputs = tuple(inputs)
        self.label = label
        self.resources = resources
        self.has_known_schema = has_known_schema
        self.is_shuffle = hasattr(operator, "assign")
        self.is_keyed = hasattr(operator, "keys") or hasattr(operator, "key")
        self.is_step = hasattr(operator, "apply")
        self.partitions = self._count_partitions()

    def _count_partitions(self) -> int:
        if isinstance(self.operator, Union):
            return sum(relation.partitions for relation in self.inputs)
        if self.is_step:
            return partitions_of_step(self.inputs, self.label)
        return int(getattr(self.operator, "partitions", 1))

    @property
    def num_partitions(self) -> int:
        """The published name of `partitions`."""
        return self.partitions

    def __repr__(self) -> str:
        return f"{type(self.operator).__name__}-{self.number:06d}"


def keys_may_be_together(relation: Relation) -> bool:
    """False if rows with equal keys are surely not brought together by the last exchange."""
    while relation.is_step and relation.inputs:
        relation = max(relation.inputs, key=lambda child: child.partitions)
    return relation.partitions == 1 or relation.is_keyed


def partitions_of_step(inputs: Sequence[Relation], label: str) -> int:
    """The common number of partitions; inputs with one partition are given to all tasks.

    Raises:
        PlanError: two inputs are split into different numbers of partitions.
    """
    counts = {relation.partitions for relation in inputs} - {1}
    if len(counts) > 1:
        described = ", ".join(f"{r.label} has {r.partitions}" for r in inputs)
        raise PlanError(
            f"{label}: its inputs are not partitioned alike: {described}; repartition them to the "
            "same number by the same keys, or one of them to a single partition"
        )
    return counts.pop() if counts else 1
