import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.unit.trainer_io.conftest import Place
from trainer_io.cli import command, main
from trainer_io.dataset.info import FilesInfo, ParquetInfo, dataset_info


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_help_lists_what_there_is() -> None:
    assert "dataset" in run("--help")
    assert "info" in run("dataset", "--help")
    assert "PATH" in run("dataset", "info", "--help")


def test_parquet_is_described_from_its_footers(place: Place) -> None:
    tokens = pa.array([[1, 2, 3], [4]] * 50, pa.list_(pa.int32()))
    table = pa.table({"name": ["a", "b"] * 50, "tokens": tokens})
    for part in range(2):
        place.write_table(f"{part}.parquet", table, row_group_size=30)
    found = dataset_info(place.root, place.source)
    assert isinstance(found, ParquetInfo)
    assert (found.files, found.rows, found.row_groups) == (2, 200, 8)
    assert [(c.name, c.values) for c in found.columns] == [("name", 200), ("tokens", 400)]
    assert 0 < sum(c.stored_bytes for c in found.columns) < found.stored_bytes


def test_files_are_described_by_size_and_extension(place: Place) -> None:
    for name, size in (("a.txt", 10), ("b.txt", 30), ("c/d", 20)):
        place.write(name, b"x" * size)
    found = dataset_info(place.root, place.source)
    assert isinstance(found, FilesInfo)
    assert (found.files, found.stored_bytes) == (3, 60)
    assert (found.file_bytes_median, found.file_bytes_max) == (20, 30)
    assert found.extensions == {".txt": 2, "none": 1}


def test_info_prints_text_or_json(local: Place) -> None:
    local.write_table("a.parquet", pa.table({"text": ["x", "y", "z"]}))
    text = run("dataset", "info", local.root)
    assert "3" in text
    assert "text" in text
    assert json.loads(run("dataset", "info", local.root, "--json"))["rows"] == 3


def test_an_error_is_one_line(
    local: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["trainer-io", "dataset", "info", f"{local.root}/missing"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1
