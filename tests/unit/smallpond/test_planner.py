"""Where stages end, and what each of them reads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest

from smallpond.errors import PlanError
from smallpond.operators.by_hash import ByHash
from smallpond.operators.map_rows import MapRows
from smallpond.operators.scan_parquet import ScanParquet
from smallpond.operators.shuffle import Shuffle
from smallpond.operators.sql import Sql
from smallpond.operators.store import Store, output_of
from smallpond.operators.write_files import ParquetOptions, WriteParquet
from smallpond.plan.planner import Plan, Planner
from smallpond.plan.relation import ByFiles, ByRows, Literal, Operator, Relation, Resources, Union
from smallpond.plan.selection import (
    AllFiles,
    Concatenated,
    Everything,
    Held,
    RunOfFileRows,
    RunOfFiles,
    RunOfRows,
    RunOfTasks,
    SamePartition,
    Shuffled,
    evenly,
)

STORE = Store()


def relation(operator: Operator, *inputs: Relation, known: bool = True) -> Relation:
    return Relation(operator, inputs, label="test", has_known_schema=known)


def scan() -> Relation:
    return relation(ScanParquet(("/x/*.parquet",)))


def literal() -> Relation:
    return relation(Literal(pa.table({"a": [1]})))


def sql(*inputs: Relation, text: str = "select * from {0}") -> Relation:
    return relation(Sql((text,)), *inputs)


def plan(*roots: Relation, sink: object = STORE, held: Sequence[Relation] = ()) -> Plan:
    outputs = {r: output_of([[]], pa.schema([("a", pa.int64())])) for r in held}
    planner = Planner({}, outputs, itertools.count(1), seed=1, cpus=2)
    return planner.plan([(root, sink) for root in roots])  # type: ignore[misc]


def kinds(made: Plan) -> list[list[type]]:
    return [[type(selection) for selection in stage.inputs] for stage in made.stages]


def test_a_chain_of_steps_is_one_stage() -> None:
    made = plan(sql(sql(sql(scan()))))
    assert kinds(made) == [[AllFiles]]


def test_a_shuffle_is_two_stages_and_splits_a_plain_source() -> None:
    made = plan(sql(relation(ByHash(8, ("a",)), scan())))
    assert kinds(made) == [[RunOfFileRows], [Shuffled]]
    assert [stage.partitions for stage in made.stages] == [4, 8]
    assert isinstance(made.stages[0].pipeline.sink, Shuffle)


def test_a_source_under_sql_is_not_split_because_sql_sees_its_partition() -> None:
    made = plan(relation(ByHash(8, ("a",)), sql(scan(), text="select sum(a) from {0}")))
    assert [stage.partitions for stage in made.stages] == [1, 8]
    row_by_row = relation(MapRows(len, None), scan(), known=False)  # type: ignore[arg-type]
    made = plan(relation(ByHash(8, ("a",)), row_by_row))
    assert [stage.partitions for stage in made.stages] == [4, 8]


def test_a_shuffle_into_one_partition_moves_nothing() -> None:
    made = plan(sql(relation(ByHash(1, ("a",)), sql(scan()))))
    assert kinds(made) == [[AllFiles], [Everything]]


def test_files_and_rows_are_cut_without_reading_them() -> None:
    assert kinds(plan(sql(relation(ByFiles(3), scan())))) == [[RunOfFiles]]
    assert kinds(plan(sql(relation(ByRows(3), scan())))) == [[RunOfFileRows]]
    held = literal()
    assert kinds(plan(sql(relation(ByRows(3), held)), held=[held])) == [[Held]]


def test_computed_rows_are_cut_where_they_are_stored() -> None:
    assert kinds(plan(sql(relation(ByFiles(3), sql(scan()))))) == [[AllFiles], [RunOfTasks]]
    assert kinds(plan(sql(relation(ByRows(3), sql(scan()))))) == [[AllFiles], [RunOfRows]]


def test_what_two_read_is_computed_once() -> None:
    base = sql(scan())
    made = plan(sql(sql(base), sql(base), text="from {0} join {1}"))
    assert kinds(made) == [[AllFiles], [SamePartition, SamePartition]]
    assert made.stages[1].inputs[0].stages == made.stages[1].inputs[1].stages == (1,)


def test_an_unpartitioned_side_is_computed_once_and_given_to_all() -> None:
    many = relation(ByHash(3, ("a",)), scan())
    one = sql(scan())
    made = plan(sql(many, one, text="from {0} join {1}"))
    assert kinds(made) == [[RunOfFileRows], [AllFiles], [Shuffled, Everything]]


def test_a_step_with_unknown_types_ends_its_stage_before_sql_and_before_files() -> None:
    def unknown(cut: Relation) -> Relation:
        return relation(MapRows(len, None), cut, known=False)  # type: ignore[arg-type]

    many = relation(ByFiles(3), scan())
    assert kinds(plan(sql(unknown(many)))) == [[RunOfFiles], [SamePartition]]
    assert not plan(sql(unknown(many))).stages[1].inputs[0].same_partition
    assert kinds(plan(sql(unknown(scan())))) == [[AllFiles]]
    write = WriteParquet("/out", ParquetOptions())
    assert kinds(plan(unknown(many), sink=write)) == [[RunOfFiles], [SamePartition]]
    assert kinds(plan(sql(many), sink=write)) == [[RunOfFiles]]


def test_a_union_is_the_partitions_of_both() -> None:
    both = relation(Union(), relation(ByFiles(2), scan()), scan())
    assert both.partitions == 3
    assert kinds(plan(sql(both))) == [[RunOfFiles], [AllFiles], [Concatenated]]


def test_resources_of_fused_steps_are_the_largest() -> None:
    first = Relation(Sql(("from {0}",)), [scan()], label="a", resources=Resources(cpus=3))
    second = Relation(Sql(("from {0}",)), [first], label="b", resources=Resources(1, 0, 7))
    (stage,) = plan(second).stages
    assert stage.resources == Resources(3, 0, 7)


def test_random_numbers_make_a_stage_keep_its_threads() -> None:
    assert plan(sql(scan())).stages[0].elastic
    assert not plan(sql(sql(scan(), text="select random() from {0}"))).stages[0].elastic


def test_unlike_partitions_are_refused() -> None:
    with pytest.raises(PlanError, match="not partitioned alike"):
        sql(relation(ByFiles(2), scan()), relation(ByFiles(3), scan()), text="from {0} join {1}")


def test_even_cuts_cover_everything_once() -> None:
    for count, partitions in itertools.product(range(12), range(1, 9)):
        runs = [evenly(count, partitions, index) for index in range(partitions)]
        assert [first for first, _ in runs] == [
            sum(n for _, n in runs[:i]) for i in range(partitions)
        ]
        assert sum(size for _, size in runs) == count
        assert max(n for _, n in runs) - min(n for _, n in runs) <= 1
