"""The data frame face, end to end on real worker processes."""

from __future__ import annotations

import collections
import json
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import smallpond
from smallpond.dataframe import DataFrame
from smallpond.errors import OutputExists, PlanError, SmallpondError, TaskFailed
from smallpond.session import Session


@pytest.fixture(scope="module")
def sp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session = smallpond.init(data_root=str(tmp_path_factory.mktemp("smallpond")))
    yield session
    session.shutdown()


def column(frame: DataFrame, name: str = "item") -> list[Any]:
    return [row[name] for row in frame.take_all()]


def numbers(sp: Session, count: int, partitions: int) -> DataFrame:
    return sp.from_items(list(range(count))).repartition(partitions, by_rows=True)


# Sources


def test_items_become_a_column_or_columns(sp: Session) -> None:
    assert sp.from_items([1, 2]).take_all() == [{"item": 1}, {"item": 2}]
    assert sp.from_items([{"a": 1}, {"a": 2, "b": "x"}]).take_all() == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
    ]


def test_arrow_and_pandas_round_trip(sp: Session) -> None:
    table = pa.table({"a": [1, None, 3], "s": pa.array(["x", None, "z"], pa.large_string())})
    assert sp.from_arrow(table).to_arrow() == table
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [4.5, 5.5, 6.5]})
    assert sp.from_pandas(frame).to_pandas().equals(frame)
    assert column(sp.from_pandas(frame).repartition(2, by_rows=True).map(lambda r: r), "a") == [
        1,
        2,
        3,
    ]


@pytest.fixture
def parquet_directory(tmp_path: Path) -> Path:
    for index in range(3):
        table = pa.table({"a": range(index * 10, index * 10 + 10), "file": [index] * 10})
        pq.write_table(table, tmp_path / f"{index}.parquet")
    return tmp_path


@pytest.mark.parametrize("pattern", ["", "*.parquet", "[0-2].parquet"])
def test_read_parquet_takes_directories_and_globs(
    sp: Session, parquet_directory: Path, pattern: str
) -> None:
    frame = sp.read_parquet(str(parquet_directory / pattern))
    assert frame.count() == 30
    assert column(frame, "a") == list(range(30))


def test_read_parquet_columns_recursive_and_union_by_name(sp: Session, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2], "c": [0.5]}), tmp_path / "sub" / "2.parquet")
    pq.write_table(pa.table({"a": [9]}), tmp_path / ".hidden.parquet")
    assert sp.read_parquet(str(tmp_path), columns=["a"]).take_all() == [{"a": 1}]
    frame = sp.read_parquet(str(tmp_path), recursive=True, union_by_name=True)
    assert frame.take_all() == [
        {"a": 1, "b": "x", "c": None},
        {"a": 2, "b": None, "c": 0.5},
    ]


def test_a_path_that_matches_nothing_is_an_error(sp: Session, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file matches"):
        sp.read_parquet(str(tmp_path / "nope" / "*.parquet")).count()


def test_csv_with_and_without_header(sp: Session, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tx\n2\ty\n")
    schema = {"n": "bigint", "s": "varchar"}
    frame = sp.read_csv(str(tmp_path / "a.tsv"), schema=schema, delim=r"\t")
    assert frame.take_all() == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]
    (tmp_path / "b.csv").write_text("n;s\n1;NA\n2;y\n")
    frame = sp.read_csv(
        str(tmp_path / "b.csv"), schema=schema, delim=";", header=True, nullstr="NA"
    )
    assert frame.repartition(2, hash_by="n").map(lambda r: r).count() == 2
    assert frame.take_all() == [{"n": 1, "s": None}, {"n": 2, "s": "y"}]


def test_json_lines(sp: Session, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1, "s": "x"}\n{"n": 2}\n')
    frame = sp.read_json(str(tmp_path / "a.json"), schema={"n": "bigint", "s": "varchar"})
    assert frame.take_all() == [{"n": 1, "s": "x"}, {"n": 2, "s": None}]


def test_sources_and_outputs_behind_fsspec(sp: Session, tmp_path: Path) -> None:
    """`local://` is served by fsspec, which is the path that `fs3://` takes."""
    pq.write_table(pa.table({"a": range(100)}), tmp_path / "1.parquet", row_group_size=10)
    url = f"local://{tmp_path}"
    assert sp.read_parquet(f"{url}/*.parquet").filter("a > 90").count() == 9
    cut = sp.read_parquet(f"{url}/1.parquet").repartition(3, by_rows=True)
    assert cut.map("count(*) as n").take_all() == [{"n": 34}, {"n": 33}, {"n": 33}]
    cut.map(lambda r: {"b": r["a"] * 2}).write_parquet(f"{url}/out")
    assert sorted(column(sp.read_parquet(f"{url}/out"), "b")) == list(range(0, 200, 2))
    (tmp_path / "c.csv").write_text("1,x\n")
    for _ in range(2):  # the second time in a DuckDB that has the file system already
        assert sp.read_csv(f"{url}/c.csv", schema={"n": "int", "s": "varchar"}).count() == 1


def test_staging_behind_fsspec(tmp_path: Path) -> None:
    with smallpond.init(data_root=f"local://{tmp_path}") as sp:
        frame = numbers(sp, 200_000, 2).repartition(3, hash_by="item")
        assert frame.map("sum(item) as s").to_pandas()["s"].sum() == sum(range(200_000))


# Partitioning


def test_repartition_by_files_deals_whole_files(sp: Session, parquet_directory: Path) -> None:
    frame = sp.read_parquet(str(parquet_directory)).repartition(2)
    assert frame.map("min(a) as lo, max(a) as hi").take_all() == [
        {"lo": 0, "hi": 19},
        {"lo": 20, "hi": 29},
    ]
    spread = sp.read_parquet(str(parquet_directory)).repartition(5)
    assert column(spread.map("count(*) as n"), "n") == [10, 10, 10, 0, 0]


def test_repartition_by_rows_cuts_files(sp: Session, parquet_directory: Path) -> None:
    frame = sp.read_parquet(str(parquet_directory)).repartition(4, by_rows=True)
    assert column(frame.map("count(*) as n"), "n") == [8, 8, 7, 7]
    assert column(frame, "a") == list(range(30))


def test_repartition_by_key_is_the_partition_number(sp: Session) -> None:
    frame = sp.from_items(list(range(1000))).repartition(10, by="item % 10")
    assert frame.map("min(item % 10) as lo, max(item % 10) as hi").take_all() == [
        {"lo": i, "hi": i} for i in range(10)
    ]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("item % 11", "partition key 10 is out of range 0-9"),
        ("nullif(item, 5)", "partition key is NULL"),
    ],
)
def test_a_key_outside_the_partitions_is_an_error(sp: Session, key: str, message: str) -> None:
    with pytest.raises(TaskFailed, match=message):
        sp.from_items(list(range(11))).repartition(10, by=key).count()


def test_hash_partitions_keep_keys_together_and_add_no_column(sp: Session) -> None:
    rows = [{"k": f"key {i % 7}", "v": i} for i in range(500)]
    frame = sp.from_items(rows).repartition(4, hash_by=["k"])
    table = frame.to_arrow()
    assert table.column_names == ["k", "v"]
    assert sorted(table["v"].to_pylist()) == list(range(500))
    counted = frame.map("k, count(*) over (partition by k) as n")
    per_key = collections.Counter(row["k"] for row in counted.take_all())
    assert all(row["n"] == per_key[row["k"]] for row in counted.take_all())


@pytest.mark.parametrize("key", ["a % 3", "d", "l", "s::varchar || 'x'"])
def test_hash_by_expressions_and_nested_types(sp: Session, key: str) -> None:
    frame = sp.partial_sql(
        "select range as a, (range / 2)::decimal(10, 1) as d, [range % 3] as l, "
        "{'x': range % 5} as s from range(50)"
    ).repartition(3, hash_by=key)
    assert sorted(column(frame, "a")) == list(range(50))


def test_empty_partitions_carry_the_schema(sp: Session) -> None:
    frame = sp.from_items([1, 2, 3, 4]).repartition(16, hash_by="item")
    doubled = frame.map(lambda r: {"x": r["item"] * 2})
    assert sorted(column(doubled, "x")) == [2, 4, 6, 8]
    assert sorted(column(doubled.filter("x > 4"), "x")) == [6, 8]
    assert doubled.repartition(2, hash_by="x").map("sum(x) as s").to_pandas()["s"].sum() == 20


def test_an_empty_frame_can_be_repartitioned(sp: Session) -> None:
    empty = sp.from_items([1, 2, 3]).filter("item > 100")
    assert empty.repartition(2, hash_by="item").take_all() == []
    assert empty.repartition(2, by_rows=True).to_arrow().column_names == ["item"]
    assert empty.filter(lambda _: True).count() == 0


def test_random_shuffle_keeps_rows_and_mixes_them(sp: Session) -> None:
    mixed = numbers(sp, 1000, 10).random_shuffle()
    items = column(mixed)
    assert sorted(items) == list(range(1000))
    inversions = sum(a > b for i, a in enumerate(items) for b in items[i + 1 :])
    assert 220_000 <= inversions <= 280_000
    after_python = numbers(sp, 100, 2).map(lambda r: r).random_shuffle()
    assert sorted(column(after_python)) == list(range(100))


# Steps


def test_map_by_sql_and_by_function(sp: Session) -> None:
    frame = sp.from_arrow(pa.table({"a": [1, 2, 3], "b": [4, 5, 6]}))
    assert frame.map("a + b as c").to_arrow() == pa.table({"c": [5, 7, 9]})
    assert frame.map(lambda r: {"c": r["a"] + r["b"]}).to_arrow() == pa.table({"c": [5, 7, 9]})
    schema = pa.schema([("c", pa.int64())])
    nothing = frame.map(lambda _: {"c": None}, schema=schema)
    assert nothing.to_arrow().schema == schema


def test_types_of_a_map_are_found_over_all_its_rows(sp: Session) -> None:
    frame = numbers(sp, 100, 4).map(
        lambda r: (
            {"late": r["item"] if r["item"] > 90 else None}
            | ({"extra": "x"} if r["item"] == 99 else {})
        )
    )
    table = frame.to_arrow()
    assert table.schema == pa.schema([("late", pa.int64()), ("extra", pa.large_string())])
    assert frame.filter("late is not null").count() == 9


def test_a_map_whose_types_disagree_says_what_to_do(sp: Session) -> None:
    frame = numbers(sp, 10, 2).map(lambda r: {"x": "text" if r["item"] > 4 else 1})
    with pytest.raises(SmallpondError, match="schema="):
        frame.to_arrow()


def test_flat_map_by_sql_and_by_function(sp: Session) -> None:
    frame = sp.from_arrow(pa.table({"a": [1, 2, 3], "b": [4, 5, 6]}))
    expected = pa.table({"c": [1, 4, 2, 5, 3, 6]})
    assert frame.flat_map("unnest(array[a, b]) as c").to_arrow() == expected
    assert frame.flat_map(lambda r: [{"c": r["a"]}, {"c": r["b"]}]).to_arrow() == expected
    assert frame.flat_map(lambda _: []).count() == 0


def test_map_batches_are_full_across_files_and_never_across_partitions(
    sp: Session, parquet_directory: Path
) -> None:
    frame = sp.read_parquet(str(parquet_directory))

    def size(batch: pa.Table) -> pa.Table:
        return pa.table({"n": [batch.num_rows]})

    assert column(frame.map_batches(size, batch_size=14), "n") == [14, 14, 2]
    assert column(frame.repartition(2).map_batches(size, batch_size=14), "n") == [14, 6, 10]


def test_filter_by_sql_and_by_function(sp: Session) -> None:
    frame = sp.from_arrow(pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}))
    expected = [{"a": 2, "b": None}, {"a": 3, "b": "z"}]
    assert frame.filter("a > 1").take_all() == expected
    assert frame.filter(lambda r: r["a"] > 1).take_all() == expected


def test_partial_sort_orders_each_partition(sp: Session) -> None:
    frame = numbers(sp, 10, 2).partial_sort(["item desc"])
    assert column(frame) == [4, 3, 2, 1, 0, 9, 8, 7, 6, 5]


def test_limit_take_and_count(sp: Session) -> None:
    frame = numbers(sp, 1000, 10)
    assert frame.limit(2).count() == 2
    assert len(frame.take(3)) == 3
    assert frame.take(0) == []
    assert frame.count() == 1000
    assert sp.partial_sql("select * from range(1000000000)").limit(2).count() == 2


def test_braces_that_are_no_placeholders_are_left_alone(sp: Session) -> None:
    frame = sp.from_items([{"a": 1, "b": "{}"}])
    assert frame.map("{'x': a, 'y': {'z': a}} as s").take_all() == [{"s": {"x": 1, "y": {"z": 1}}}]
    assert frame.map("{{'x': a}} as s").take_all() == [{"s": {"x": 1}}]
    assert frame.filter("b = '{}'").count() == 1


def test_partial_sql_joins_equal_partitions_and_broadcasts(sp: Session) -> None:
    left = sp.from_items([{"id": i, "l": i * 10} for i in range(20)]).repartition(3, hash_by="id")
    right = sp.from_items([{"id2": i, "r": i * 100} for i in range(20)])
    query = "select id, l, r from {0} join {1} on id = id2"
    by_hash = sp.partial_sql(query, left, right.repartition(3, hash_by="id2"))
    broadcast = sp.partial_sql(query, left, right.map("id2, r"))
    expected = [{"id": i, "l": i * 10, "r": i * 100} for i in range(20)]
    for joined in (by_hash, broadcast):
        assert sorted(joined.take_all(), key=lambda row: row["id"]) == expected


def test_partial_sql_of_unlike_partitions_is_refused_with_names(sp: Session) -> None:
    one, other = numbers(sp, 10, 2), numbers(sp, 10, 3)
    with pytest.raises(PlanError, match=r"not partitioned alike.*has 2.*has 3"):
        sp.partial_sql("select * from {0} join {1} using (item)", one, other)
    with pytest.raises(PlanError, match=r"names input \{1\}"):
        sp.partial_sql("select * from {1}", one)


def test_an_input_read_twice_is_computed_once(sp: Session) -> None:
    noise = sp.from_items([1, 2, 3]).map("item, random() as r")
    both = sp.partial_sql("select a.r = b.r as same from {0} a join {0} b using (item)", noise)
    assert both.take_all() == [{"same": True}] * 3


def test_random_numbers_are_the_same_each_time(sp: Session) -> None:
    noise = numbers(sp, 100, 4).map("item, random() as r")
    first = noise.filter("r > 0.5").take_all()
    assert 0 < len(first) < 100
    assert noise.filter("r > 0.5").take_all() == first


def test_python_and_sql_alternate_in_one_task(sp: Session) -> None:
    frame = (
        numbers(sp, 100_000, 2)
        .map("item, item * 2 as b")
        .filter(lambda r: r["b"] % 4 == 0)
        .map("item + b as c")
        .map_batches(lambda t: t, batch_size=1000)
        .map("sum(c) as s")
    )
    assert frame.to_pandas()["s"].sum() == sum(i * 3 for i in range(0, 100_000, 2))


# Results


def test_computed_frames_are_kept_and_recompute_forgets(sp: Session, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def touch(row: dict[str, Any]) -> dict[str, Any]:
        with open(mark, "a") as file:
            file.write("x")
        return row

    frame = sp.from_items([1]).map(touch)
    assert not frame.is_computed()
    frame.compute()
    assert frame.is_computed()
    assert frame.count() == 1
    assert frame.map("item + 1 as x").take_all() == [{"x": 2}]
    assert mark.read_text() == "x"
    frame.recompute()
    assert not frame.is_computed()
    frame.compute()
    assert mark.read_text() == "xx"


def test_a_frame_used_twice_is_computed_once(sp: Session, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def touch(row: dict[str, Any]) -> dict[str, Any]:
        with open(mark, "a") as file:
            file.write("x")
        return row

    base = sp.from_items([1, 2]).map(touch)
    joined = sp.partial_sql(
        "select * from {0} join {1} using (item)", base, base.map("item, 1 as one")
    )
    assert joined.count() == 2
    assert mark.read_text() == "xx"


def test_rows_of_dropped_frames_are_removed(sp: Session) -> None:
    frame = sp.partial_sql("select range as a from range(100000)")
    frame.compute()
    staged = Path(sp._runtime_ctx.stage_directory(sp._stored[frame.plan]))
    assert list(staged.iterdir())
    del frame
    sp.from_items([1]).map("item").compute()
    assert not staged.exists()


def test_sums_of_integers_are_integers(sp: Session) -> None:
    frame = sp.from_items([1, 2, 3]).map("sum(item) as s")
    assert frame.take_all() == [{"s": 6}]
    assert isinstance(frame.take_all()[0]["s"], int)
    assert frame.to_pandas()["s"].dtype == "int64"


def test_to_pandas_has_a_fresh_index(sp: Session) -> None:
    assert list(numbers(sp, 4, 2).to_pandas().index) == [0, 1, 2, 3]


def test_wait_computes_several_frames(sp: Session) -> None:
    frames = [numbers(sp, 10, 2).map(f"item + {i} as x") for i in range(3)]
    sp.wait(*frames)
    assert all(frame.is_computed() for frame in frames)


# Output


def read_all(path: Path) -> pd.DataFrame:
    return duckdb.sql(f"select * from '{path}/*.parquet'").df()


def test_write_parquet_writes_a_file_per_partition_with_rows(sp: Session, tmp_path: Path) -> None:
    out = tmp_path / "out"
    frame = sp.from_items(list(range(10))).repartition(4, by="item % 3")
    frame.write_parquet(str(out))
    names = sorted(os.listdir(out))
    assert len(names) == 3
    assert all(name.startswith(f"part-0000{i}-of-00004-") for i, name in enumerate(names))
    assert sorted(read_all(out)["item"]) == list(range(10))
    assert os.listdir(tmp_path) == ["out"]
    metadata = pq.read_metadata(out / names[0])
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_lazy_writes_happen_once_when_waited_for(sp: Session, tmp_path: Path) -> None:
    frame = sp.from_items([1, 2, 3]).map("item * 2 as item")
    lazy = frame.write_parquet_lazy(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert not lazy.is_computed()
    sp.wait(lazy, frame)
    lazy.compute()
    assert lazy.is_computed()
    assert sorted(read_all(tmp_path / "out")["item"]) == [2, 4, 6]
    assert lazy.count() == 3


def test_write_modes(sp: Session, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    frame = sp.from_items([1, 2])
    frame.write_parquet(out)
    frame.write_parquet(out)
    assert sp.read_parquet(out).count() == 4
    frame.map("item + 10 as item").write_parquet(out, mode="overwrite")
    assert sorted(column(sp.read_parquet(out))) == [11, 12]
    with pytest.raises(OutputExists, match="overwrite"):
        frame.write_parquet(out, mode="error")
    with pytest.raises(PlanError, match="mode must be"):
        frame.write_parquet(out, mode="replace")
    assert os.listdir(tmp_path) == ["out"]


def test_an_empty_result_is_one_empty_file_with_the_schema(sp: Session, tmp_path: Path) -> None:
    out = tmp_path / "out"
    numbers(sp, 10, 3).filter("item > 100").write_parquet(str(out))
    assert len(os.listdir(out)) == 1
    assert pq.read_schema(out / os.listdir(out)[0]).names == ["item"]


def test_a_failed_write_leaves_nothing(sp: Session, tmp_path: Path) -> None:
    out = tmp_path / "out"
    frame = numbers(sp, 10, 5).map(lambda r: {"x": 1 // (r["item"] - 9)})
    with pytest.raises(ZeroDivisionError):
        frame.write_parquet(str(out))
    assert os.listdir(tmp_path) == []


def test_written_types_agree_over_all_files(sp: Session, tmp_path: Path) -> None:
    out = tmp_path / "out"
    numbers(sp, 10, 5).map(lambda r: {"late": r["item"] if r["item"] > 7 else None}).write_parquet(
        str(out)
    )
    kinds = {str(pq.read_schema(out / name).field("late").type) for name in os.listdir(out)}
    assert kinds == {"int64"}


def test_readers_never_see_a_part_of_an_output(sp: Session, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def slow(_: dict[str, Any]) -> dict[str, Any]:
        return {"visible": out.exists()}

    numbers(sp, 8, 4).map(slow).write_parquet(str(out))
    assert not read_all(out)["visible"].any()


# Failures


def test_grouping_unpartitioned_rows_by_partial_sql_is_warned_of(sp: Session) -> None:
    query = "select item % 3 as k, count(*) as n from {0} GROUP  BY 1"
    with pytest.warns(UserWarning, match=r"df.group_by\(...\).agg"):
        sp.partial_sql(query, numbers(sp, 10, 2).filter("item > 1"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sp.partial_sql(query, numbers(sp, 10, 2).repartition(2, hash_by="item % 3"))
        sp.partial_sql(query, sp.from_items([1]))
        sp.partial_sql("select * from {0}", numbers(sp, 10, 2))


def test_a_task_within_too_little_memory_spills(sp: Session) -> None:
    rows = sp.partial_sql("select range as a, md5(range::varchar) as s from range(3000000)")
    ordered = rows.partial_sort("s", memory_limit="130MB")
    ordered.compute()
    assert ordered.count() == 3_000_000
    hashes = ordered.to_arrow()["s"]
    assert pc.all(pc.greater_equal(hashes[1:], hashes[:-1])).as_py()


def test_wide_rows_pass_functions_in_small_pieces(sp: Session) -> None:
    """400 MB of text in one partition; all of it as Python objects would be several times that."""
    texts = sp.partial_sql("select range as a, repeat('x', 200000) as t from range(2000)")

    def size(row: dict[str, Any]) -> dict[str, Any]:
        # Not getrusage: its peak is inherited from whoever started the process.
        status = Path("/proc/self/status").read_text()
        peak_kib = int(status.partition("VmHWM:")[2].split()[0])
        return {"a": row["a"], "n": len(row["t"]), "kib": peak_kib}

    with smallpond.init(data_root=sp.config.data_root) as fresh:
        rows = DataFrame(fresh, texts.plan).map(size).to_pandas()
    assert list(rows["a"]) == list(range(2000))
    assert set(rows["n"]) == {200_000}
    assert rows["kib"].max() < 900 << 10


def test_the_timeline_shows_attempts_and_opens_alone(tmp_path: Path) -> None:
    with smallpond.init(data_root=str(tmp_path)) as session:
        session.from_items(["<&>"]).map(lambda row: row).compute()
        log = Path(session._runtime_ctx.log_root)
    page = (log / "timeline.html").read_text()
    assert "map at test_smallpond.py:" in page
    assert "1 attempts on 1 workers" in page
    assert "http" not in page
    trace = json.loads((log / "timeline_exec").read_text())
    assert [event["ph"] for event in trace["traceEvents"]] == ["X"]


def test_the_error_of_a_function_names_place_row_and_partition(sp: Session) -> None:
    frame = numbers(sp, 10, 5).map(lambda r: {"x": 1 // (r["item"] - 7)})
    with pytest.raises(ZeroDivisionError) as caught:
        frame.count()
    text = str(caught.value)
    assert isinstance(caught.value, TaskFailed)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "map at test_smallpond.py:" in text
    assert "failed in partition 3 of 5: ZeroDivisionError" in text
    assert "row: {'item': 7}" in text
    assert "in <lambda>" in text
    assert len(text.splitlines()) < 10


def test_the_error_of_a_query_names_query_and_input(sp: Session, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "in.parquet")
    frame = sp.partial_sql("select a,, from {0}", sp.read_parquet(str(tmp_path)))
    with pytest.raises(duckdb.ParserException) as caught:
        frame.to_arrow()
    text = str(caught.value)
    assert "select a,, from {0}" in text
    assert f"input 0: {tmp_path}/in.parquet" in text
    cast = sp.read_parquet(str(tmp_path)).map("a::int as b")
    with pytest.raises(TaskFailed, match="Could not convert string 'x' to INT32"):
        cast.count()


def test_a_function_that_cannot_be_sent_is_refused_with_a_hint(sp: Session) -> None:
    lock = threading.Lock()
    with pytest.raises(RuntimeError, match="Can't pickle task map at"):
        sp.from_items([1]).map(lambda _: {"x": lock.locked()}).count()


def test_after_a_failure_the_session_goes_on(sp: Session) -> None:
    with pytest.raises(TaskFailed):
        sp.from_items([0]).map(lambda r: {"x": 1 / r["item"]}).count()
    assert sp.from_items([1]).map(lambda r: {"x": 1 / r["item"]}).count() == 1


@pytest.mark.parametrize("call", ["map", "repartition", "partial_sort", "init"])
def test_unknown_arguments_are_refused(sp: Session, call: str) -> None:
    frame = sp.from_items([1])
    calls = {
        "init": lambda: smallpond.init(colour=1),
        "map": lambda: frame.map("item", colour=1),
        "repartition": lambda: frame.repartition(2, colour=1),
        "partial_sort": lambda: frame.partial_sort("item", colour=1),
    }
    with pytest.raises(TypeError, match="unexpected keyword arguments: colour"):
        calls[call]()


def test_more_threads_than_there_are_is_no_reason_to_wait_forever(sp: Session) -> None:
    assert sp.from_items([1]).map("item", cpu_limit=640, memory_limit="900TB").count() == 1


def test_a_worker_killed_in_the_middle_costs_a_retry(sp: Session, tmp_path: Path) -> None:
    once = tmp_path / "once"

    def die_once(row: dict[str, Any]) -> dict[str, Any]:
        if row["item"] == 57 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": row["item"] * 2}

    frame = numbers(sp, 100, 10).map(die_once)
    assert column(frame, "x") == [i * 2 for i in range(100)]
    assert once.exists()


def test_a_task_that_kills_every_worker_is_given_up(sp: Session) -> None:
    def die(row: dict[str, Any]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return row

    with pytest.raises(TaskFailed, match="6 workers died running it, the last one: killed by SIG"):
        sp.from_items([1]).map(die).count()


def test_a_lost_intermediate_file_is_made_again(sp: Session) -> None:
    base = sp.partial_sql("select range as a from range(300000)").map("a, a % 7 as k")
    base.compute()
    staged = list(Path(sp._runtime_ctx.staging_root).glob("*/0.*.arrow"))
    for path in staged:
        path.unlink()
    assert base.map("sum(a) as s").to_pandas()["s"].sum() == sum(range(300_000))


def test_session_directories_go_at_a_good_end_and_stay_after_a_failure(tmp_path: Path) -> None:
    good = smallpond.init(data_root=str(tmp_path / "good"))
    good.from_items([1]).map("item").write_parquet(good._runtime_ctx.output_root)
    roots = good._runtime_ctx
    assert os.path.exists(roots.queue_root)
    good.shutdown()
    good.shutdown()
    assert not os.path.exists(roots.staging_root)
    assert "success" in Path(roots.job_status_path).read_text()
    bad = smallpond.init(data_root=str(tmp_path / "bad"))
    with pytest.raises(TaskFailed):
        bad.from_items([1]).map(lambda r: {"x": r["item"] / 0}).compute()
    bad.shutdown()
    assert os.path.exists(bad._runtime_ctx.staging_root)
    assert "failure" in Path(bad._runtime_ctx.job_status_path).read_text()
    with pytest.raises(SmallpondError, match="shut down"):
        bad.from_items([1]).map("item").count()
