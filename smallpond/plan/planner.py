"""From relations to stages.

Steps run in the task that reads their input, so a chain of maps, filters and queries is one stage
and its rows never touch a disk in between. A stage ends where rows must move or be kept:

* at an exchange (shuffle, or a cut of stored rows into other partitions);
* where two relations read the same one, so that it is computed once;
* where an unpartitioned input is given to many tasks;
* behind a Python step without declared schema, if the next step must know the types: they are those
  of all partitions together.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from smallpond.operators.by_range import FindRange
from smallpond.operators.filter_rows import FilterRows
from smallpond.operators.flat_map_rows import FlatMapRows
from smallpond.operators.limit import Limit
from smallpond.operators.map_rows import MapRows
from smallpond.operators.shuffle import Shuffle
from smallpond.operators.sql import Sql, is_volatile
from smallpond.operators.step import Sink, TaskOutput
from smallpond.operators.store import Store
from smallpond.plan.relation import ByFiles, ByRows, Literal, Relation, Resources, Union
from smallpond.plan.selection import (
    AllFiles,
    Concatenated,
    Everything,
    Held,
    Listing,
    NoRows,
    RunOfFileRows,
    RunOfFiles,
    RunOfRows,
    RunOfTasks,
    SamePartition,
    Shuffled,
)
from smallpond.plan.stage import Apply, Leaf, Pipeline, Selection, Stage, StageId

_ROW_BY_ROW = (MapRows, FlatMapRows, FilterRows, FindRange)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Stages in an order in which each comes after those it reads, and where the roots end."""

    stages: tuple[Stage, ...]
    roots: Mapping[Relation, StageId]
    stored: Mapping[Relation, StageId]


class TypesUnknown(Exception):
    """The types of a relation are known only once its rows are computed."""

    def __init__(self, relation: Relation) -> None:
        super().__init__(relation)
        self.relation = relation


class Planner:
    """Cuts the relations that lead to some roots into stages.

    Args:
        computed: relations whose rows are stored already, with the stage that did it.
        held: where the rows of literals are.
        stage_ids: numbers for new stages, unique in the session.
        seed: start of all randomness of the session.
        cpus: of the whole cluster; decides how many tasks split an unpartitioned source.
    """

    def __init__(
        self,
        computed: Mapping[Relation, StageId],
        held: Mapping[Relation, TaskOutput],
        stage_ids: Iterable[StageId],
        seed: int,
        cpus: int,
    ) -> None:
        self._stored = dict(computed)
        self._held = held
        self._stage_ids = iter(stage_ids)
        self._seed = seed
        self._cpus = cpus
        self._stages: list[Stage] = []
        self._shuffled: dict[Relation, StageId] = {}
        self._listings: dict[Relation, Listing] = {}
        self._consumers: Counter[Relation] = Counter()

    def plan(self, roots: Sequence[tuple[Relation, Sink]]) -> Plan:
        """Stages that take each root to its sink."""
        self._consumers = _count_consumers([relation for relation, _ in roots], self._stored)
        ends = {}
        for relation, sink in roots:
            if isinstance(sink, Store):
                ends[relation] = self._store(relation)
                continue
            if relation.is_step and not relation.has_known_schema and relation.partitions > 1:
                self._store(relation)
            ends[relation] = self._add_stage(relation, sink, relation.partitions)
        return Plan(tuple(self._stages), ends, self._stored)

    def probe(self, relation: Relation) -> Plan:
        """One task that takes no rows through all the steps, to learn the types of the result.

        Raises:
            TypesUnknown: for a step below whose types depend on its rows.
        """
        inputs: list[Selection] = []
        root = self._probe_tree(relation, inputs)
        pipeline = Pipeline(root, Store(), relation.label, self._seed, 1)
        number = next(self._stage_ids)
        stage = Stage(number, relation.label, 1, pipeline, tuple(inputs), Resources(), False)
        return Plan((stage,), {relation: number}, self._stored)

    def _probe_tree(self, relation: Relation, inputs: list[Selection]) -> Leaf | Apply:
        operator = relation.operator
        if relation in self._stored or isinstance(operator, Literal):
            inputs.append(NoRows(self._whole(relation)))
            return Leaf(len(inputs) - 1)
        if hasattr(operator, "has_row_counts"):
            every = AllFiles(self._listing(relation))
            inputs.append(NoRows(every) if operator.has_row_counts else every)
            leaf = Leaf(len(inputs) - 1)
            return leaf if operator.has_row_counts else Apply(Limit(0), (leaf,), relation.label)
        if not relation.has_known_schema:
            raise TypesUnknown(relation)
        below = [self._probe_tree(child, inputs) for child in _typed_by(relation)]
        if isinstance(operator, Union):
            both = " union all by name ".join(f"select * from {{{i}}}" for i in range(len(below)))
            return Apply(Sql((both,)), tuple(below), relation.label)
        if not relation.is_step or isinstance(operator, FindRange):
            return below[0]
        return Apply(operator, tuple(below), relation.label)  # type: ignore[arg-type]

    def _store(self, relation: Relation) -> StageId:
        """The stage that keeps the rows of a relation, planned at most once."""
        if relation not in self._stored:
            self._stored[relation] = self._add_stage(relation, Store(), relation.partitions)
        return self._stored[relation]

    def _add_stage(self, relation: Relation, sink: Sink, partitions: int) -> StageId:
        inputs: list[Selection] = []
        fused: list[Relation] = []
        root = self._tree(relation, relation, partitions, inputs, fused)
        stage_id = next(self._stage_ids)
        label = relation.label
        pipeline = Pipeline(root, sink, label, self._seed, partitions)
        stage = Stage(
            id=stage_id,
            label=label,
            partitions=partitions,
            pipeline=pipeline,
            inputs=tuple(inputs),
            resources=_combined([r.resources for r in [relation, *fused]]),
            elastic=_is_elastic(fused),
        )
        self._stages.append(stage)
        return stage_id

    def _tree(
        self,
        relation: Relation,
        top: Relation,
        partitions: int,
        inputs: list[Selection],
        fused: list[Relation],
    ) -> Leaf | Apply:
        """The step tree below `relation`; what cannot be fused becomes an input."""
        splits = partitions != top.partitions  # an unpartitioned source read by several tasks
        fits = relation.partitions == partitions or splits
        shared = relation is not top and self._consumers[relation] > 1
        if relation.is_step and relation not in self._stored and fits and not shared:
            fused.append(relation)
            below: list[Leaf | Apply] = []
            for child in relation.inputs:
                if _ends_stage(child, relation, partitions):
                    inputs.append(self._selection(child, partitions, splits=False))
                    below.append(Leaf(len(inputs) - 1))
                else:
                    below.append(self._tree(child, top, partitions, inputs, fused))
            return Apply(relation.operator, tuple(below), relation.label)  # type: ignore[arg-type]
        inputs.append(self._selection(relation, partitions, splits))
        return Leaf(len(inputs) - 1)

    def _selection(self, relation: Relation, partitions: int, splits: bool) -> Selection:
        """How a stage with `partitions` tasks reads a relation that it does not compute."""
        operator = relation.operator
        if relation in self._stored or relation.is_step:
            return self._of_stored(relation, partitions)
        if isinstance(operator, Union):
            stages = [self._store(child) for child in relation.inputs]
            parts = tuple(SamePartition(stage, has_known_schema=False) for stage in stages)
            return Concatenated(parts, tuple(child.partitions for child in relation.inputs))
        if isinstance(operator, ByFiles | ByRows):
            return self._cut(relation.inputs[0], operator)
        if relation.is_shuffle:
            if relation.partitions == 1:
                return self._whole(relation.inputs[0])
            return Shuffled(self._shuffle(relation))
        if isinstance(operator, Literal):
            return Held(self._held[relation])
        listing = self._listing(relation)
        if splits and partitions > 1:
            has_counts = listing.scan.has_row_counts
            return (RunOfFileRows if has_counts else RunOfFiles)(listing, partitions)
        return AllFiles(listing)

    def _of_stored(self, relation: Relation, partitions: int) -> Selection:
        stage = self._store(relation)
        if relation.partitions == 1 and partitions != 1:
            return Everything(stage)
        return SamePartition(stage, relation.has_known_schema)

    def _cut(self, source: Relation, cut: ByFiles | ByRows) -> Selection:
        """A cut of files where the source is files, else of stored rows."""
        by_rows = isinstance(cut, ByRows)
        if cut.partitions == 1:  # may be read by many tasks
            return self._whole(source)
        if source in self._held and source not in self._stored:
            return Held(self._held[source], cut.partitions, by_rows)
        is_scan = hasattr(source.operator, "has_row_counts") and source not in self._stored
        if is_scan and not by_rows:
            return RunOfFiles(self._listing(source), cut.partitions)
        if is_scan and source.operator.has_row_counts:  # type: ignore[union-attr]
            return RunOfFileRows(self._listing(source), cut.partitions)
        stage = self._store(source)
        return (RunOfRows if by_rows else RunOfTasks)(stage, cut.partitions)

    def _whole(self, source: Relation) -> Selection:
        """All rows of a relation, whichever task asks."""
        if source in self._held and source not in self._stored:
            return Held(self._held[source])
        if hasattr(source.operator, "has_row_counts") and source not in self._stored:
            return AllFiles(self._listing(source))
        return Everything(self._store(source))

    def _shuffle(self, relation: Relation) -> StageId:
        """The stage that splits the rows of an exchange's input, planned at most once."""
        if relation not in self._shuffled:
            source = relation.inputs[0]
            partitions = self._producers(source)
            sink = Shuffle(relation.operator)  # type: ignore[arg-type]
            self._shuffled[relation] = self._add_stage(source, sink, partitions)
        return self._shuffled[relation]

    def _producers(self, source: Relation) -> int:
        """How many tasks split an exchange's input.

        An unpartitioned source is read by several, which changes nothing for the user: nothing but
        steps that see one row at a time lie between the files and the exchange.
        """
        if source.partitions > 1:
            return source.partitions
        relation = source
        while (
            isinstance(relation.operator, _ROW_BY_ROW)
            and relation not in self._stored
            and self._consumers[relation.inputs[0]] <= 1
        ):
            relation = relation.inputs[0]
        if relation in self._stored or not hasattr(relation.operator, "has_row_counts"):
            return 1
        listing = self._listing(relation)
        if listing.scan.has_row_counts:
            return 2 * self._cpus
        return min(len(listing.pieces), 4 * self._cpus)

    def _listing(self, relation: Relation) -> Listing:
        if relation not in self._listings:
            self._listings[relation] = Listing(relation.operator)  # type: ignore[arg-type]
        return self._listings[relation]


def _count_consumers(
    roots: Sequence[Relation], stored: Mapping[Relation, StageId]
) -> Counter[Relation]:
    """How many relations read each one; roots count once more."""
    consumers: Counter[Relation] = Counter(roots)
    pending = list(dict.fromkeys(roots))
    seen = set(pending)
    while pending:
        relation = pending.pop()
        if relation in stored:
            continue
        for child in relation.inputs:
            consumers[child] += 1
            if child not in seen:
                seen.add(child)
                pending.append(child)
    return consumers


def _typed_by(relation: Relation) -> tuple[Relation, ...]:
    """The inputs that the types of a relation depend on."""
    return relation.inputs[:1] if isinstance(relation.operator, FindRange) else relation.inputs


def _ends_stage(child: Relation, parent: Relation, partitions: int) -> bool:
    """True if the parent must know the child's types and only all partitions together tell them."""
    needs_types = isinstance(parent.operator, Sql | FindRange)
    return partitions > 1 and child.is_step and not child.has_known_schema and needs_types


def _is_elastic(fused: Sequence[Relation]) -> bool:
    """More threads help SQL, and change nothing unless it draws random numbers."""
    steps = [relation.operator for relation in fused]
    sql = [step for step in steps if isinstance(step, Sql)]
    only_sql = all(isinstance(step, Sql | Limit) for step in steps)
    return only_sql and bool(sql) and not any(is_volatile(step.statements) for step in sql)


def _combined(resources: Sequence[Resources]) -> Resources:
    """What a task needs that runs all of them."""
    memory = [r.memory_bytes for r in resources if r.memory_bytes is not None]
    return Resources(
        cpus=max(r.cpus for r in resources),
        gpus=max(r.gpus for r in resources),
        memory_bytes=max(memory) if memory else None,
    )
