"""The demo's shell: exit codes, the JSON line, and that nothing is left behind."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.demo import command
from deploy.demo.cluster import Started
from deploy.demo.options import Options, parse
from deploy.demo.report import StageOutcome
from deploy.demo.runner import Demo

KEYS = [
    *("ok", "stages", "files", "bytes", "rows", "samples_per_s", "stall_s", "retried_ops"),
    *("loss_before", "loss_after", "killed_node", "url"),
]


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Logs of a failure are kept on purpose, here among pytest's files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("temporary")))


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Signals mean afterwards what they meant before."""
    before = {number: signal.getsignal(number) for number in command.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | None], None]:
    """Replaces all stages by one that leaves a file and a log, and then raises or not."""

    def replace(failure: BaseException | None) -> None:
        def run(demo: Demo) -> None:
            demo.cluster.directory.mkdir()
            (demo.cluster.directory / "data").write_text("x")
            demo.log_directories[1].mkdir()
            (demo.log_directories[1] / "job.log").write_text("said something")
            started = Started("fs3://127.0.0.1:1", 3, 2)
            demo.report.stages.append(StageOutcome("cluster", 1.0, started, None))
            if failure is not None:
                demo.report.stages.append(StageOutcome("ingest", 2.0, None, str(failure)))
                raise failure

        monkeypatch.setattr(Demo, "run", run)

    return replace


def test_success_prints_json_and_leaves_nothing(
    stages: Callable[[BaseException | None], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stages(None)
    directory = tmp_path / "demo"
    assert command.main(Options(as_json=True, directory=directory)) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(document) == KEYS
    assert document["ok"] is True
    assert document["url"] == "fs3://127.0.0.1:1"
    assert document["stages"][0] == {"name": "cluster", "seconds": 1.0, "ok": True, "error": None}
    assert not directory.exists()


def test_failure_names_stage_reason_and_logs(
    stages: Callable[[BaseException | None], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stages(OSError("no space left"))
    directory = tmp_path / "demo"
    assert command.main(Options(as_json=True, directory=directory)) == 1
    out = capsys.readouterr().out
    assert "ingest" in out
    assert "no space left" in out
    logs = Path(out.split("logs and the traceback are in ")[1].split()[0])
    assert (logs / "job.log").read_text() == "said something"
    assert "no space left" in (logs / "traceback.txt").read_text()
    document = json.loads(out.splitlines()[-1])
    assert document["ok"] is False
    assert document["files"] is None
    assert not directory.exists()


def test_interruption_cleans_up(
    stages: Callable[[BaseException | None], None], tmp_path: Path
) -> None:
    stages(KeyboardInterrupt())
    directory = tmp_path / "demo"
    assert command.main(Options(directory=directory)) == 130
    assert not directory.exists()


def test_an_interruption_that_a_library_made_an_error_of_is_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(demo: Demo) -> None:
        del demo
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None

    monkeypatch.setattr(Demo, "run", run)
    assert command.main(Options(directory=tmp_path / "demo")) == 130
    assert not (tmp_path / "demo").exists()


def test_keep_says_where_to_look(
    stages: Callable[[BaseException | None], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stages(None)
    assert command.main(Options(keep=True, directory=tmp_path)) == 0
    assert (tmp_path / "cluster" / "data").exists()
    assert f"fs3 --dir {tmp_path / 'cluster'} status" in capsys.readouterr().out


def test_a_directory_that_is_in_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("precious")
    assert command.main(Options(directory=tmp_path)) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "precious"


def test_options_are_read() -> None:
    assert parse([]) == Options()
    assert parse(["--quick", "--json", "--keep", "--dir", "x"]) == Options(
        quick=True, as_json=True, keep=True, directory=Path("x")
    )
