"""Data frames whose input, intermediate files and output are on a real cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smallpond
from deploy.local import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def root(local_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A directory of its own, by a URL that does not name the cluster: FS3_URL does."""
    monkeypatch.setenv("FS3_URL", local_cluster.url)
    fs = fsspec.filesystem("fs3", skip_instance_cache=True)
    url = f"fs3:///smallpond-{uuid.uuid4().hex}"
    fs.makedirs(url)
    yield url
    fs.rm(url, recursive=True)


def write_input(url: str, files: int, rows: int) -> None:
    fs = fsspec.filesystem("fs3")
    for index in range(files):
        table = pa.table({"k": [i % 100 for i in range(rows)], "v": range(rows)})
        with fs.open(f"{url}/in/{index}.parquet", "wb") as file:
            pq.write_table(table, file, row_group_size=1000)


@pytest.mark.parametrize("staging", ["local", "fs3"])
def test_a_job_from_fs3_to_fs3(
    root: str, staging: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write_input(root, files=4, rows=20_000)
    data_root = f"{root}/data" if staging == "fs3" else str(tmp_path_factory.mktemp("data"))
    with smallpond.init(data_root=data_root) as sp:
        frame = sp.read_parquet(f"{root}/in/*.parquet").repartition(3, hash_by="k")
        sums = sp.partial_sql("select k, sum(v) as s, count(*) as n from {0} group by k", frame)
        sums.write_parquet(f"{root}/out")
        by_rows = sp.read_parquet(f"{root}/in").repartition(7, by_rows=True)
        assert by_rows.filter(lambda row: row["v"] % 2 == 0).count() == 40_000
        result = sp.read_parquet(f"{root}/out").partial_sort("k").to_pandas()
    assert list(result["k"]) == list(range(100))
    assert list(result["s"]) == [4 * sum(range(k, 20_000, 100)) for k in range(100)]
    fs = fsspec.filesystem("fs3")
    names = sorted(path.rpartition("/")[2] for path in fs.ls(root, detail=False))
    assert names == (["data", "in", "out"] if staging == "fs3" else ["in", "out"])


def test_text_sources_and_overwriting_on_fs3(
    root: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fs = fsspec.filesystem("fs3")
    with fs.open(f"{root}/a.csv", "wb") as file:
        file.write(b"1,x\n2,y\n")
    with smallpond.init(data_root=str(tmp_path_factory.mktemp("data"))) as sp:
        frame = sp.read_csv(f"{root}/*.csv", schema={"n": "bigint", "s": "varchar"})
        frame.write_parquet(f"{root}/out")
        frame.filter("n = 2").write_parquet(f"{root}/out", mode="overwrite")
        assert sp.read_parquet(f"{root}/out").take_all() == [{"n": 2, "s": "y"}]
    assert len(fs.ls(root, detail=False)) == 2
