"""The kinds of selections: which rows of which outputs or files a partition holds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import TypeVar

from smallpond.io import arrow
from smallpond.io.segments import Segment
from smallpond.operators.pieces import FilePiece
from smallpond.operators.step import TaskOutput
from smallpond.plan.relation import Scan
from smallpond.plan.stage import (
    Outputs,
    ResolvedInput,
    ScanInput,
    Selection,
    StageId,
    StoredInput,
)

_Part = TypeVar("_Part", Segment, FilePiece)


def evenly(count: int, partitions: int, index: int) -> tuple[int, int]:
    """First element and length of run `index` when `count` are cut in `partitions` equal runs.

    The first runs are one longer where it does not divide.
    """
    size, longer = divmod(count, partitions)
    return index * size + min(index, longer), size + (index < longer)


def take_rows(parts: Iterable[_Part], first: int, rows: int) -> list[_Part]:
    """The parts, cut where needed, that hold `rows` rows from row `first` on."""
    taken = []
    for part in parts:
        assert part.rows is not None
        skipped = min(first, part.rows)
        count = min(rows, part.rows - skipped)
        first -= skipped
        if count > 0:
            taken.append(part.slice(skipped, count))
            rows -= count
    return taken


def stored_input(outputs: Iterable[TaskOutput | None], segments: Iterable[Segment]) -> StoredInput:
    """Segments with the schema that the finished outputs share once unified."""
    distinct = {output.schema: output for output in outputs if output is not None}
    schema = arrow.unify(output.arrow_schema() for output in distinct.values())
    return StoredInput(tuple(segments), schema.serialize().to_pybytes())


def all_segments(outputs: Iterable[TaskOutput | None]) -> list[Segment]:
    """Everything that finished tasks stored, in order of partition."""
    return [
        segment
        for output in outputs
        if output is not None
        for part in output.parts
        for segment in part
    ]


@dataclasses.dataclass(frozen=True)
class OfStage:
    """Base of the selections from one earlier stage; needs all its tasks unless it says less."""

    stage: StageId

    @property
    def stages(self) -> tuple[StageId, ...]:
        return (self.stage,)

    @property
    def same_partition(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class SamePartition(OfStage):
    """What the task of the same index stored.

    Attributes:
        has_known_schema: False if the types are known only once all tasks are done.
    """

    has_known_schema: bool

    @property
    def same_partition(self) -> bool:
        return self.has_known_schema

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        every = outputs[self.stage]
        return stored_input(every, all_segments([every[partition]]))


@dataclasses.dataclass(frozen=True)
class Everything(OfStage):
    """All rows of a stage, for one task or for each of many."""

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        del partition
        return stored_input(outputs[self.stage], all_segments(outputs[self.stage]))


@dataclasses.dataclass(frozen=True)
class RunOfTasks(OfStage):
    """Outputs of whole tasks, dealt in order to `partitions`."""

    partitions: int

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        every = outputs[self.stage]
        first, count = evenly(len(every), self.partitions, partition)
        return stored_input(every, all_segments(every[first : first + count]))


@dataclasses.dataclass(frozen=True)
class RunOfRows(OfStage):
    """An equal run of all rows."""

    partitions: int

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        every = outputs[self.stage]
        segments = all_segments(every)
        total = sum(segment.rows for segment in segments)
        first, rows = evenly(total, self.partitions, partition)
        return stored_input(every, take_rows(segments, first, rows))


@dataclasses.dataclass(frozen=True)
class Shuffled(OfStage):
    """The part with this partition's number from every task of a stage that split its rows."""

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        every = outputs[self.stage]
        parts = [output.parts[partition] for output in every if output is not None]
        return stored_input(every, [segment for part in parts for segment in part])


@dataclasses.dataclass(frozen=True)
class Concatenated:
    """The partitions of several selections behind each other, as one frame with one schema."""

    selections: tuple[OfStage, ...]
    counts: tuple[int, ...]

    @property
    def stages(self) -> tuple[StageId, ...]:
        return tuple(selection.stage for selection in self.selections)

    @property
    def same_partition(self) -> bool:
        return False

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        every = [output for stage in self.stages for output in outputs[stage]]
        for selection, count in zip(self.selections, self.counts, strict=True):
            if partition < count:
                own = all_segments([outputs[selection.stage][partition]])
                return stored_input(every, own)
            partition -= count
        raise AssertionError("partition beyond the union")


@dataclasses.dataclass(frozen=True)
class Held:
    """Rows that the user's program gave, or an equal run of them.

    Attributes:
        partitions: None to give all to every task.
        by_rows: False to give all to the first partition, as one file would be.
    """

    output: TaskOutput
    partitions: int | None = None
    by_rows: bool = False

    @property
    def stages(self) -> tuple[StageId, ...]:
        return ()

    @property
    def same_partition(self) -> bool:
        return False

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        del outputs
        segments = all_segments([self.output])
        if self.partitions is not None:
            pieces = self.partitions if self.by_rows else 1
            is_mine = partition < pieces
            first, rows = evenly(self.output.rows, pieces, partition) if is_mine else (0, 0)
            segments = take_rows(segments, first, rows)
        return stored_input([self.output], segments)


@dataclasses.dataclass(frozen=True)
class NoRows:
    """None of the rows of another selection, with their types."""

    selection: Selection

    @property
    def stages(self) -> tuple[StageId, ...]:
        return self.selection.stages

    @property
    def same_partition(self) -> bool:
        return False

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        source = self.selection.resolve(partition, outputs)
        if isinstance(source, StoredInput):
            return StoredInput((), source.schema)
        first = FilePiece(source.pieces[0].path, 0, 0, is_whole=False)
        return ScanInput(source.scan, (first,))


class Listing:
    """The files of a scan, looked up once per job."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan

    @functools.cached_property
    def pieces(self) -> list[FilePiece]:
        return self.scan.pieces()

    @functools.cached_property
    def counted(self) -> list[FilePiece]:
        return self.scan.counted(self.pieces)


@dataclasses.dataclass(frozen=True)
class OfFiles:
    """Base of the selections from files."""

    listing: Listing

    @property
    def stages(self) -> tuple[StageId, ...]:
        return ()

    @property
    def same_partition(self) -> bool:
        return False

    def _input(self, pieces: Sequence[FilePiece]) -> ScanInput:
        """The pieces; for none, an empty slice of the first file, which carries the schema."""
        if not pieces:
            pieces = [FilePiece(self.listing.pieces[0].path, 0, 0, is_whole=False)]
        return ScanInput(self.listing.scan, tuple(pieces))


@dataclasses.dataclass(frozen=True)
class AllFiles(OfFiles):
    """The whole source."""

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        del partition, outputs
        return self._input(self.listing.pieces)


@dataclasses.dataclass(frozen=True)
class RunOfFiles(OfFiles):
    """Whole files, dealt in order to `partitions`."""

    partitions: int

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        del outputs
        first, count = evenly(len(self.listing.pieces), self.partitions, partition)
        return self._input(self.listing.pieces[first : first + count])


@dataclasses.dataclass(frozen=True)
class RunOfFileRows(OfFiles):
    """An equal run of all rows of all files."""

    partitions: int

    def resolve(self, partition: int, outputs: Outputs) -> ResolvedInput:
        del outputs
        total = sum(piece.rows or 0 for piece in self.listing.counted)
        first, rows = evenly(total, self.partitions, partition)
        return self._input(take_rows(self.listing.counted, first, rows))
