"""fsspec's own abstract suite, path rules, and the libraries that reach fs3 through fsspec."""

import pickle
import posixpath
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from fs3.client.filesystem import FileSystem
from fs3.fsspec import Fs3FileSystem


@pytest.fixture(params=["fake", pytest.param("cluster", marks=pytest.mark.cluster)])
def filesystem(request: pytest.FixtureRequest) -> FileSystem:
    fs: FileSystem = request.getfixturevalue(f"{request.param}_fs")
    return fs


@pytest.fixture
def remote(filesystem: FileSystem) -> Fs3FileSystem:
    return Fs3FileSystem(filesystem=filesystem, skip_instance_cache=True)


@pytest.fixture
def root(filesystem: FileSystem) -> Iterator[str]:
    path = f"/fsspec-{uuid.uuid4().hex}"
    filesystem.mkdir(path)
    yield path
    filesystem.remove_tree(path)


class Fs3Fixtures(AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, remote: Fs3FileSystem) -> Fs3FileSystem:
        return remote

    @pytest.fixture
    def fs_path(self, root: str) -> str:
        return root

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join


class TestCopy(AbstractCopyTests, Fs3Fixtures):  # type: ignore[misc]
    pass


class TestGet(AbstractGetTests, Fs3Fixtures):  # type: ignore[misc]
    pass


class TestPut(AbstractPutTests, Fs3Fixtures):  # type: ignore[misc]
    pass


class TestOpen(AbstractOpenTests, Fs3Fixtures):  # type: ignore[misc]
    pass


class TestPipe(AbstractPipeTests, Fs3Fixtures):  # type: ignore[misc]
    pass


# Paths.


@pytest.mark.parametrize(
    ("url", "path", "options"),
    [
        ("fs3:///a/b", "/a/b", {}),
        ("fs3://a/b", "/a/b", {}),
        ("fs3://a/b/", "/a/b", {}),
        ("fs3://", "/", {}),
        ("/a//b", "/a//b", {}),
        ("a", "/a", {}),
        ("fs3://host:7000/a", "/a", {"url": "fs3://host:7000"}),
        ("fs3://host:7000", "/", {"url": "fs3://host:7000"}),
        ("fs3://[::1]:7000/a", "/a", {"url": "fs3://[::1]:7000"}),
        ("fs3://2024:a/b", "/2024:a/b", {}),
        ("fs3://bucket:70000x/b", "/bucket:70000x/b", {}),
    ],
)
def test_path_rules(url: str, path: str, options: dict[str, str]) -> None:
    assert Fs3FileSystem._strip_protocol(url) == path
    assert Fs3FileSystem._get_kwargs_from_urls(url) == options


def test_the_protocol_is_registered() -> None:
    assert fsspec.get_filesystem_class("fs3") is Fs3FileSystem


def test_names_carry_the_cluster_they_belong_to(filesystem: FileSystem) -> None:
    named = Fs3FileSystem(url="fs3://h:1", filesystem=filesystem, skip_instance_cache=True)
    default = Fs3FileSystem(filesystem=filesystem, skip_instance_cache=True)
    assert named.unstrip_protocol("/a") == "fs3://h:1/a"
    assert default.unstrip_protocol("/a") == "fs3:///a"


# Operations.


def test_info_and_ls(remote: Fs3FileSystem, root: str) -> None:
    remote.pipe(f"{root}/d/f", b"123")
    remote.filesystem.symlink("d/f", f"{root}/link")
    remote.filesystem.symlink("nowhere", f"{root}/dangling")
    assert remote.info(f"{root}/d/f")["size"] == 3
    assert remote.info(f"{root}/d")["type"] == "directory"
    kinds = {posixpath.basename(e["name"]): e["type"] for e in remote.ls(root)}
    assert kinds == {"d": "directory", "link": "file", "dangling": "link"}
    assert remote.info(f"{root}/link")["destination"] == "d/f"
    assert remote.ls(f"{root}/d/f", detail=False) == [f"{root}/d/f"]
    assert remote.find(root) == [f"{root}/d/f", f"{root}/dangling", f"{root}/link"]
    assert remote.glob(f"{root}/*/f") == [f"{root}/d/f"]
    assert remote.du(f"{root}/d") == 3
    assert remote.lexists(f"{root}/dangling")
    assert not remote.exists(f"{root}/dangling")
    with pytest.raises(FileNotFoundError):
        remote.ls(f"{root}/none")


def test_ranges(remote: Fs3FileSystem, root: str) -> None:
    remote.pipe({f"{root}/a": b"0123456789", f"{root}/b": b"abc"})
    assert remote.cat_file(f"{root}/a", 2, 5) == b"234"
    assert remote.cat_file(f"{root}/a", -3) == b"789"
    assert remote.cat_file(f"{root}/a", None, -8) == b"01"
    both = [f"{root}/a", f"{root}/b"]
    assert remote.cat_ranges(both, [1, 0], [3, 100]) == [b"12", b"abc"]
    assert remote.cat_ranges(both, -1, None) == [b"9", b"c"]
    good, bad = remote.cat_ranges([f"{root}/a", f"{root}/none"], 0, 1)
    assert good == b"0"
    assert isinstance(bad, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        remote.cat_ranges([f"{root}/none"], 0, 1, on_error="raise")
    assert remote.head(f"{root}/a", 2) == b"01"
    assert remote.tail(f"{root}/a", 2) == b"89"


def test_mv_is_one_rename(remote: Fs3FileSystem, root: str) -> None:
    remote.pipe(f"{root}/d/f", b"x")
    inode = remote.info(f"{root}/d/f")["ino"]
    remote.mv(f"{root}/d", f"{root}/new/place", recursive=True)
    assert remote.info(f"{root}/new/place/f")["ino"] == inode


def test_times(remote: Fs3FileSystem, root: str) -> None:
    remote.touch(f"{root}/f")
    before = remote.modified(f"{root}/f")
    assert before.tzinfo is not None
    assert remote.created(f"{root}/f") >= before.replace(year=2000)
    remote.touch(f"{root}/f", truncate=False)
    assert remote.modified(f"{root}/f") >= before


def test_a_transaction_shows_its_files_at_its_end(remote: Fs3FileSystem, root: str) -> None:
    with remote.transaction, remote.open(f"{root}/f", "wb") as file:
        file.write(b"x")
        assert not remote.exists(f"{root}/f")
    assert remote.cat(f"{root}/f") == b"x"

    def fail() -> None:
        with remote.transaction:
            with remote.open(f"{root}/g", "wb") as file:
                file.write(b"x")
            raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError):
        fail()
    assert remote.ls(root, detail=False) == [f"{root}/f"]


def test_text_and_compression(remote: Fs3FileSystem, root: str) -> None:
    with remote.open(f"{root}/f.gz", "wt", compression="infer", encoding="utf-8") as file:
        file.write("äöü\n" * 1000)
    assert remote.size(f"{root}/f.gz") < 1000
    with remote.open(f"{root}/f.gz", "rt", compression="infer", encoding="utf-8") as file:
        assert file.readline() == "äöü\n"


def test_missing_parents_stay_missing_when_asked(filesystem: FileSystem, root: str) -> None:
    strict = Fs3FileSystem(filesystem=filesystem, auto_mkdir=False, skip_instance_cache=True)
    with pytest.raises(FileNotFoundError):
        strict.pipe(f"{root}/a/b", b"")


def test_progress_callback(remote: Fs3FileSystem, root: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(100_000))
    callback = fsspec.Callback()
    remote.put_file(str(tmp_path / "f"), f"{root}/f", callback=callback)
    assert (callback.size, callback.value) == (100_000, 100_000)


# Libraries.


@pytest.fixture
def registered(filesystem: FileSystem, monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes `fs3://` URLs reach the file system under test."""
    monkeypatch.setattr("fs3.fsspec._shared", lambda _url, _directory: filesystem)
    Fs3FileSystem.clear_instance_cache()
    yield "fs3://"
    Fs3FileSystem.clear_instance_cache()


@pytest.fixture
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {"key": np.arange(20_000) % 7, "value": random.normal(size=20_000), "name": "row"}
    )


def test_pandas(registered: str, root: str, frame: pd.DataFrame) -> None:
    url = f"{registered}{root}/frame"
    frame.to_parquet(f"{url}.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(f"{url}.parquet"), frame)
    assert list(pd.read_parquet(f"{url}.parquet", columns=["key"]).columns) == ["key"]
    frame.to_csv(f"{url}.csv", index=False)
    pd.testing.assert_frame_equal(pd.read_csv(f"{url}.csv"), frame)


def test_pyarrow(remote: Fs3FileSystem, root: str, frame: pd.DataFrame) -> None:
    table = pa.Table.from_pandas(frame)
    pq.write_table(table, f"{root}/t.parquet", filesystem=remote, row_group_size=4_000)
    assert pq.read_table(f"{root}/t.parquet", filesystem=remote).equals(table)
    ds.write_dataset(
        table, f"{root}/set", format="parquet", partitioning=["key"], filesystem=remote
    )
    found = ds.dataset(f"{root}/set", format="parquet", partitioning=["key"], filesystem=remote)
    assert found.count_rows(filter=ds.field("key") == 3) == int((frame.key == 3).sum())
    with remote.filesystem.open(f"{root}/t.parquet", "rb") as file:
        assert pq.ParquetFile(file).metadata.num_row_groups == 5


def test_duckdb(remote: Fs3FileSystem, root: str, frame: pd.DataFrame) -> None:
    connection = duckdb.connect()
    connection.register_filesystem(remote)
    url = f"fs3://{root}/t.parquet"
    connection.execute("create table t as select * from frame")
    connection.execute(f"copy t to '{url}' (format parquet)")
    rows: Any = connection.execute(
        f"select key, count(*) from '{url}' group by key order by key"
    ).fetchall()
    assert rows == sorted(frame.key.value_counts().items())
    connection.execute(f"copy t to 'fs3://{root}/parts' (format parquet, partition_by (key))")
    count = connection.execute(f"select count(*) from 'fs3://{root}/parts/*/*.parquet'").fetchone()
    assert count == (20_000,)


@pytest.mark.cluster
def test_pickling_and_urls_reach_a_cluster(cluster_fs: FileSystem) -> None:
    root = f"/fsspec-{uuid.uuid4().hex}"
    fs = fsspec.filesystem("fs3", url=cluster_fs.url)
    fs.pipe(f"{root}/f", b"x")
    assert pickle.loads(pickle.dumps(fs)).cat(f"{root}/f") == b"x"
    with fsspec.open(f"{cluster_fs.url}{root}/f") as file:
        assert file.read() == b"x"
    fs.rm(root, recursive=True)
