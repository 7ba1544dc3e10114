"""Output directories: what readers see before, during and after a commit."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smallpond.io import files
from smallpond.io.commit import OutputDirectory

SCHEMA = pa.schema([("a", pa.int64())])


def run(path: str, mode: str, *values: int) -> OutputDirectory:
    """One run that writes a file per value."""
    output = OutputDirectory(path, mode)
    output.begin()
    written = []
    for index, value in enumerate(values):
        file = files.join(output.attempts, f"{index}.0.parquet")
        with files.files_for(file).open_output(file) as sink:
            pq.write_table(pa.table({"a": [value]}), sink)
        written.append((index, file))
    output.commit(written, len(values), SCHEMA)
    return output


def values(path: Path) -> list[int]:
    return sorted(v for file in path.iterdir() for v in pq.read_table(file)["a"].to_pylist())


def test_a_missing_or_empty_target_becomes_the_output(tmp_path: Path) -> None:
    run(str(tmp_path / "new" / "deep"), "append", 1, 2)
    assert values(tmp_path / "new" / "deep") == [1, 2]
    (tmp_path / "empty").mkdir()
    run(str(tmp_path / "empty"), "error", 3)
    assert values(tmp_path / "empty") == [3]


def test_append_adds_and_overwrite_replaces(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(str(out), "append", 1)
    run(str(out), "append", 2)
    assert values(out) == [1, 2]
    run(str(out), "overwrite", 3)
    assert values(out) == [3]
    assert os.listdir(tmp_path) == ["out"]


def test_overwrite_where_directories_cannot_be_exchanged() -> None:
    filesystem = fsspec.filesystem("memory")
    for value in (1, 2):
        run("memory://swap/out", "overwrite", value)
    (name,) = filesystem.ls("memory://swap/out", detail=False)
    with filesystem.open(name) as file:
        assert pq.read_table(file)["a"].to_pylist() == [2]
    assert len(filesystem.ls("memory://swap", detail=False)) == 1
    filesystem.rm("memory://swap", recursive=True)


def test_no_rows_are_one_empty_file(tmp_path: Path) -> None:
    run(str(tmp_path / "out"), "append")
    (name,) = os.listdir(tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / name)
    assert (table.num_rows, table.schema) == (0, SCHEMA)


def test_nothing_is_visible_before_the_commit(tmp_path: Path) -> None:
    output = OutputDirectory(str(tmp_path / "out"), "append")
    output.begin()
    assert not (tmp_path / "out").exists()
    assert files.files_for("/").find(str(tmp_path), recursive=True) == []
    output.abort()
    assert os.listdir(tmp_path) == []


def test_a_target_whose_parent_is_read_only_is_filled_from_within(tmp_path: Path) -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.makedirs("memory://rooted", exist_ok=True)
    output = run("memory://rooted", "append", 1)
    assert output.hidden.startswith("memory://rooted/")
    assert [n for n in filesystem.ls("/rooted", detail=False) if "part-00000" in n]
    assert len(filesystem.ls("/rooted", detail=False)) == 1
    filesystem.rm("memory://rooted", recursive=True)
    del tmp_path


def test_a_file_is_no_target(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):
        OutputDirectory(str(tmp_path / "out"), "append")
