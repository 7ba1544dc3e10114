"""The plumbing of the benchmarks: wrong figures would be believed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.harness import Options, Row, Sample, in_turn, main, measured

ROWS = ("first", "second")


def row(name: str = "first", verified: bool = True) -> Row:
    ours = [Sample(value, 3.0) for value in (10.0, 30.0, 20.0)]
    reference = [Sample(value, 9.0) for value in (40.0, 40.0, 80.0)]
    return Row(name, "us", ours, "other", reference, higher_is_better=False, verified=verified)


def test_row_of_the_contract() -> None:
    assert row().to_json() == {
        "name": "first",
        "value": 20.0,
        "unit": "us",
        "reference": "other",
        "reference_value": 40.0,
        "ratio": 2.0,
        "cpu_us_per_op": 3.0,
        "reference_cpu_us_per_op": 9.0,
        "samples": [10.0, 40.0, 30.0, 40.0, 20.0, 80.0],
        "verified": True,
        "reference_run": "same",
    }


def test_without_reference_there_is_no_ratio() -> None:
    alone = Row("alone", "s", [Sample(1.5)] * 3, verified=True).to_json()
    assert alone["ratio"] is None
    assert alone["reference_value"] is None
    assert alone["samples"] == [1.5] * 3


def test_samples_are_taken_in_turn() -> None:
    order: list[str] = []

    def take(who: str) -> Sample:
        order.append(who)
        return Sample(0)

    in_turn(3, lambda: take("ours"), lambda: take("reference"))
    assert order == ["ours", "reference"] * 3


def test_cpu_of_a_whole_process_tree_is_counted() -> None:
    wait = "print('here', flush=True)\ninput()\n"
    burn = f"import time\n{wait}while time.process_time() < 0.3: pass\n{wait}"
    shell = f'"{sys.executable}" -c "{burn}"; true'
    with subprocess.Popen(
        shell, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        assert stdout.readline() == b"here\n"

        def work() -> None:
            stdin.write(b"\n")
            assert stdout.readline() == b"here\n"

        usage = measured(work, [process.pid])
        assert 0.1 < usage.cpu_seconds < 1.0
        process.communicate(b"\n")


def test_own_cpu_is_counted_by_nanoseconds() -> None:
    usage = measured(lambda: sum(range(200_000)), [os.getpid()])
    assert 0 < usage.cpu_seconds <= usage.seconds * 4
    assert usage.cpu_us_per(1000) == pytest.approx(usage.cpu_seconds * 1000)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(options: Options) -> Iterator[Row]:
        yield from (row(name) for name in ROWS if options.wants(name))

    path = tmp_path / "rows.json"
    assert main("demo", ROWS, measure, ["--quick", "--only", "second", "--json", str(path)]) == 0
    assert [entry["name"] for entry in json.loads(path.read_text())] == ["second"]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "bench demo: 1 rows, all verified"


def test_exit_codes() -> None:
    def broken(_options: Options) -> Iterator[Row]:
        yield row()
        raise RuntimeError("no server")

    assert main("demo", ROWS, lambda _options: [row(verified=False)], []) == 1
    assert main("demo", ROWS, broken, []) == 2
    with pytest.raises(SystemExit) as refused:
        main("demo", ROWS, broken, ["--only", "third"])
    assert refused.value.code == 2
