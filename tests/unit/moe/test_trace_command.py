"""`trainer-io trace report` and `compare`: figures, gaps, exit codes, one line for a bad file."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainer_io.cli import command
from trainer_io.moe.profile.kineto import write_trace

COMBINE = "void ep::internode::combine<false, 8>(int4*)"
NOTIFY = "void ep::internode::cached_notify<false>(int*)"


def event(name: str, begin_us: float, length_us: float, stream: int, blocks: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "ts": begin_us,
        "dur": length_us,
        "args": {"device": 0, "stream": stream, "grid": [blocks, 1, 1]},
    }


def trace_file(path: Path, gemm_begin_us: float = 1500) -> Path:
    """Waits 200 us, combines 2000 us from 200 us on, computes 1000 us beside, copies at 3000 us."""
    events = [
        event(NOTIFY, 0, 200, 27, 1),
        event(COMBINE, 200, 2000, 27, 20),
        event("gemm", gemm_begin_us, 1000, 7, 112),
        event("cast", 3000, 100, 7, 5000),
    ]
    device = [{"name": "GPU", "numSms": 132}]
    write_trace(path, {"traceEvents": events, "deviceProperties": device})
    return path


def trainer_io(*arguments: object) -> Result:
    return CliRunner().invoke(command, ["trace", *map(str, arguments)])


def test_json_report(tmp_path: Path) -> None:
    result = trainer_io("report", trace_file(tmp_path / "t.json.gz"), "--json")
    assert result.exit_code == 0
    value = json.loads(result.stdout)
    figures = {key: round(value[key], 3) for key in ("span_ms", "exposed_ms", "waiting_ms")}
    assert figures == {"span_ms": 3.1, "exposed_ms": 1.5, "waiting_ms": 0.2}
    assert value["hidden_fraction"] == pytest.approx(0.7 / 2.2)
    assert value["sm_split"] == {"communication": 20, "computation": 112, "waiting": 1}
    assert value["gaps"] == [{"begin_ms": 2.5, "length_ms": 0.5, "before": "gemm", "after": "cast"}]


def test_text_report(tmp_path: Path) -> None:
    result = trainer_io("report", trace_file(tmp_path / "t.json"))
    assert result.exit_code == 0
    assert "31.8% hidden behind computation" in result.stdout
    assert "rank 0 of 1, GPU of 132 SMs" in result.stdout
    assert "idle 0.500 ms at 2.50 ms, after gemm, before cast" in result.stdout


def test_unreadable_files_give_one_line_and_exit_2(tmp_path: Path) -> None:
    cut = trace_file(tmp_path / "cut.json.gz")
    cut.write_bytes(cut.read_bytes()[:-20])
    for path in (cut, tmp_path / "missing.json", tmp_path):
        result = trainer_io("report", path)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith("trainer-io: ")
        assert str(path) in result.stderr
        assert result.stderr.count("\n") == 1


def regressions(result: Result) -> list[str]:
    return [line.split()[0] for line in result.stdout.splitlines() if "WORSE" in line]


def test_comparison_exits_1_on_a_regression(tmp_path: Path) -> None:
    """A GEMM that starts later exposes communication, and starts closer to the next kernel."""
    early = trace_file(tmp_path / "early.json", gemm_begin_us=1200)
    late = trace_file(tmp_path / "late.json", gemm_begin_us=1500)
    worse = trainer_io("compare", early, late)
    assert (worse.exit_code, regressions(worse)) == (1, ["exposed_ms"])
    idle = trainer_io("compare", late, early)
    assert (idle.exit_code, regressions(idle)) == (1, ["idle_ms"])
    assert trainer_io("compare", late, late).exit_code == 0
    assert trainer_io("compare", early, late, "--tolerance", "0.5").exit_code == 0
    changes = json.loads(trainer_io("compare", early, late, "--json").stdout)
    assert [change["figure"] for change in changes if change["is_regression"]] == ["exposed_ms"]
