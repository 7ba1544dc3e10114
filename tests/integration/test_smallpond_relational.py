"""Operations over whole frames, whatever their partitions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smallpond
from smallpond.dataframe import DataFrame
from smallpond.errors import PlanError
from smallpond.session import Session


@pytest.fixture(scope="module")
def sp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session = smallpond.init(data_root=str(tmp_path_factory.mktemp("smallpond")))
    yield session
    session.shutdown()


def spread(sp: Session, rows: list[dict[str, Any]], partitions: int = 3) -> DataFrame:
    return sp.from_items(rows).repartition(partitions, by_rows=True)


def values(frame: DataFrame, name: str) -> list[Any]:
    return [row[name] for row in frame.take_all()]


def test_sort_orders_everything_over_partitions(sp: Session) -> None:
    dice = random.Random(1)
    numbers = [dice.randrange(500) for _ in range(5000)]
    frame = spread(sp, [{"a": n} for n in numbers], 4)
    ordered = frame.sort("a desc", npartitions=3)
    assert ordered.num_partitions == 3
    assert values(ordered, "a") == sorted(numbers, reverse=True)
    sizes = values(ordered.map("count(*) as n"), "n")
    assert min(sizes) > 1000


@pytest.mark.parametrize("partitions", [1, 4])
def test_sort_by_several_keys_with_null_and_nan(sp: Session, partitions: int) -> None:
    dice = random.Random(2)
    floats = [None, float("nan"), -0.0, 1.5, -3.25, float("inf")]
    rows = [
        {"s": dice.choice(["", "b", "ab", None, "é"]), "f": dice.choice(floats), "i": i}
        for i in range(300)
    ]
    terms = "s nulls first, f desc nulls last, i"
    ordered = spread(sp, rows, 5).sort(terms, npartitions=partitions)
    expected = sp.sql(f"select i from {{0}} order by {terms}", sp.from_items(rows))
    assert values(ordered, "i") == values(expected, "i")


def test_sort_of_one_value_and_of_nothing(sp: Session) -> None:
    same = spread(sp, [{"a": 1}] * 100, 3)
    assert same.sort("a", npartitions=4).count() == 100
    assert same.filter("a > 1").sort("a", npartitions=4).take_all() == []


def test_sort_reads_files_in_parallel(sp: Session, tmp_path: Path) -> None:
    for index in range(2):
        table = pa.table({"a": [i * 7919 % 10_007 for i in range(index, 10_000, 2)]})
        pq.write_table(table, tmp_path / f"{index}.parquet")
    ordered = sp.read_parquet(str(tmp_path)).sort("a")
    assert ordered.num_partitions == sp.config.cpus or sp.config.cpus == 1
    assert values(ordered, "a") == sorted(i * 7919 % 10_007 for i in range(10_000))


JOIN_EXPECTED = {
    "inner": [(2, "b", "B"), (2, "c", "B")],
    "left": [(1, "a", None), (2, "b", "B"), (2, "c", "B"), (None, "n", None)],
    "right": [(2, "b", "B"), (2, "c", "B"), (3, None, "C"), (None, None, "N")],
    "full": [
        (1, "a", None),
        (2, "b", "B"),
        (2, "c", "B"),
        (3, None, "C"),
        (None, "n", None),
        (None, None, "N"),
    ],
    "semi": [(2, "b", None), (2, "c", None)],
    "anti": [(1, "a", None), (None, "n", None)],
}


def join_sides(sp: Session) -> tuple[DataFrame, DataFrame]:
    left = [{"k": k, "l": v} for k, v in [(1, "a"), (2, "b"), (2, "c"), (None, "n")]]
    right = [{"k": k, "r": v} for k, v in [(2, "B"), (3, "C"), (None, "N")]]
    return spread(sp, left, 2), spread(sp, right, 3)


def as_tuples(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows = [(row["k"], row.get("l"), row.get("r")) for row in frame.take_all()]
    return sorted(rows, key=lambda row: tuple(str(v) if v is not None else "~" for v in row))


@pytest.mark.parametrize("how", list(JOIN_EXPECTED))
@pytest.mark.parametrize("broadcast", [None, "left", "right"])
def test_join(sp: Session, how: str, broadcast: str | None) -> None:
    left, right = join_sides(sp)
    allowed = {"left": {"inner", "right"}, "right": {"inner", "left", "semi", "anti"}}
    if broadcast is not None and how not in allowed[broadcast]:
        with pytest.raises(PlanError, match="cannot broadcast"):
            left.join(right, on="k", how=how, broadcast=broadcast)
    else:
        joined = left.join(right, on="k", how=how, broadcast=broadcast)
        assert as_tuples(joined) == JOIN_EXPECTED[how]


def test_join_of_columns_with_different_names_and_types(sp: Session) -> None:
    left = spread(sp, [{"a": i} for i in range(10)])
    right = spread(sp, [{"b": i / 2} for i in range(10)])
    joined = left.join(right, left_on="a", right_on="b")
    assert sorted(values(joined, "a")) == [0, 1, 2, 3, 4]
    decimals = right.map("b::decimal(10, 2) as d")
    assert sorted(values(left.join(decimals, left_on="a", right_on="d"), "a")) == [0, 1, 2, 3, 4]
    with pytest.raises(PlanError, match="cast one of them"):
        left.join(spread(sp, [{"s": "1"}]), left_on="a", right_on="s")
    with pytest.raises(PlanError, match="no column x"):
        left.join(right, left_on="x", right_on="b")


def test_cross_join(sp: Session) -> None:
    left, right = spread(sp, [{"a": i} for i in range(4)]), spread(sp, [{"b": i} for i in range(5)])
    assert left.join(right, how="cross").count() == 20


def test_group_by_is_global(sp: Session) -> None:
    rows = [{"k": i % 5, "v": i} for i in range(100)]
    grouped = spread(sp, rows, 4).group_by("k").agg("count(*) as n", total="sum(v)")
    assert sorted(grouped.take_all(), key=lambda row: row["k"]) == [
        {"k": k, "n": 20, "total": sum(range(k, 100, 5))} for k in range(5)
    ]
    by_expression = spread(sp, rows, 4).group_by("v % 2").agg("max(v) as top")
    assert sorted(values(by_expression, "top")) == [98, 99]
    assert spread(sp, rows, 4).agg("count(*) as n", "avg(v) as m").take_all() == [
        {"n": 100, "m": 49.5}
    ]
    assert spread(sp, rows, 4).group_by("k").agg().count() == 5


def test_distinct(sp: Session) -> None:
    rows = [{"a": i % 3, "b": [i % 2]} for i in range(60)]
    frame = spread(sp, rows, 4)
    assert frame.distinct().count() == 6
    assert sorted(values(frame.distinct("a"), "a")) == [0, 1, 2]


def test_union_matches_columns_by_name(sp: Session) -> None:
    one, other = spread(sp, [{"a": 1, "b": "x"}], 2), spread(sp, [{"b": "y", "c": 0.5}], 1)
    both = one.union(other)
    assert both.num_partitions == 3
    assert both.take_all() == [{"a": 1, "b": "x", "c": None}, {"a": None, "b": "y", "c": 0.5}]
    assert both.columns == ["a", "b", "c"]
    assert one.union(one).count() == 2


def test_columns_are_chosen_added_renamed_and_dropped(sp: Session) -> None:
    frame = spread(sp, [{"a": 1, "b c": 2}])
    assert frame.select("b c", "a + 1 as d").take_all() == [{"b c": 2, "d": 2}]
    assert frame.with_columns(e="a * 10", a="a + 5").take_all() == [{"a": 6, "b c": 2, "e": 10}]
    assert frame.rename({"b c": "b"}).take_all() == [{"a": 1, "b": 2}]
    assert frame.drop("a").columns == ["b c"]
    with pytest.raises(PlanError, match="no column x; there are a, b c"):
        frame.drop("x")


def test_sql_over_whole_frames(sp: Session) -> None:
    frame = spread(sp, [{"a": i} for i in range(100)], 7)
    assert sp.sql("select count(*) as n, sum(a) as s from {0}", frame).take_all() == [
        {"n": 100, "s": 4950}
    ]


def test_sample_is_repeatable(sp: Session) -> None:
    frame = spread(sp, [{"a": i} for i in range(10_000)], 4)
    sample = frame.sample(0.1)
    rows = values(sample, "a")
    assert 800 < len(rows) < 1200
    assert values(sample.map("a"), "a") == rows


def test_schema_is_known_without_computing(sp: Session, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    pq.write_table(pa.table({"a": [1], "s": ["x"]}), tmp_path / "1.parquet")
    frame = sp.read_parquet(str(tmp_path)).repartition(3, hash_by="a")

    def touch(row: dict[str, Any]) -> dict[str, Any]:
        mark.touch()
        return row

    kept = frame.filter(touch)
    derived = kept.map("a + 1.5 as x, [s] as l").sort("x", npartitions=2)
    assert derived.columns == ["x", "l"]
    assert kept.dtypes == {"a": pa.int64(), "s": pa.large_string()}
    assert not mark.exists()
    unknown = frame.map(touch).map("a")
    assert unknown.columns == ["a"]
    assert mark.exists()
    text = tmp_path / "1.csv"
    text.write_text("1,x\n")
    csv = sp.read_csv(str(text), schema={"n": "int", "s": "varchar"})
    assert csv.schema == pa.schema([("n", pa.int32()), ("s", pa.large_string())])


def test_explain_names_stages_sources_and_splits(sp: Session, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    frame = sp.read_parquet(str(tmp_path)).repartition(3, hash_by="a").map("a + 1 as b")
    text = frame.explain()
    assert "split into 3: ByHash(partitions=3, keys=('a',))" in text
    assert "read RunOfFileRows of ScanParquet" in text
    assert "map at test_smallpond_relational.py:" in text
    frame.compute()
    assert frame.explain() == "computed"


def test_show_prints_a_table(sp: Session, capsys: pytest.CaptureFixture[str]) -> None:
    spread(sp, [{"name": "x", "n": None}]).show()
    printed = capsys.readouterr().out
    assert "name" in printed
    assert "NULL" in printed


def test_batches_come_in_order(sp: Session) -> None:
    frame = spread(sp, [{"a": i} for i in range(10)], 3)
    assert [table["a"].to_pylist() for table in frame.iter_batches(4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


def test_an_unpartitioned_input_is_whole_in_every_task(sp: Session, tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": range(10)}), tmp_path / "1.parquet")
    many = spread(sp, [{"a": i} for i in range(30)], 3)
    query = "select a, (select count(*) from {1}) as n from {0}"
    sources = [
        sp.read_parquet(str(tmp_path)),
        sp.read_parquet(str(tmp_path)).repartition(1),
        sp.read_parquet(str(tmp_path)).repartition(1, hash_by="b"),
        sp.read_parquet(str(tmp_path)).map("b").repartition(1, by_rows=True),
        sp.from_items([{"b": i} for i in range(10)]).repartition(1),
        spread(sp, [{"b": i} for i in range(10)], 4).repartition(1),
    ]
    for one in sources:
        assert set(values(sp.partial_sql(query, many, one), "n")) == {10}
