"""What all benchmarks share: the rows of the contract, samples in turn, CPU time, table and JSON.

A benchmark is a module with a function that measures rows:

    def measure(options: Options) -> Iterator[Row]:
        with some_server() as server:
            if options.wants("single stat"):
                ours, reference = in_turn(options.samples, lambda: ..., lambda: ...)
                yield Row("single stat", "us of CPU", ours, "unary gRPC", reference, verified=True)

    if __name__ == "__main__":
        sys.exit(main("rpc", ROW_NAMES, measure))

CPU time is that of whole process trees by the kernel's nanosecond clocks; on a shared machine it is
the steady figure. Bytes or rows are compared outside the timed part, and `verified` says so.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import psutil

SAMPLES: Final = 5
SAMPLES_QUICK: Final = 3
_SERVER_STOP_S: Final = 5.0
_SCHEDULER_CLOCK: Final = 2  # CPUCLOCK_SCHED: all threads of a process, living and dead


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    quick: bool = False
    peers: bool = False
    only: str | None = None

    @property
    def samples(self) -> int:
        return SAMPLES_QUICK if self.quick else SAMPLES

    def wants(self, row: str) -> bool:
        return self.only is None or self.only == row


@dataclass(frozen=True)
class Sample:
    """One measurement: the row's value, and CPU per operation (or per MiB) of all processes."""

    value: float
    cpu_us_per_op: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table; see CONTRACT. Values are medians over the samples.

    Attributes:
        higher_is_better: how `ratio`, which is at least 1 when we are as good, is formed.
        verified: the bytes or rows were compared outside the timed part.
    """

    name: str
    unit: str
    ours: Sequence[Sample]
    reference: str | None = None
    reference_samples: Sequence[Sample] = ()
    higher_is_better: bool = True
    verified: bool = False
    reference_run: Literal["same", "stored"] = "same"

    @property
    def value(self) -> float:
        return statistics.median(sample.value for sample in self.ours)

    @property
    def reference_value(self) -> float | None:
        if not self.reference_samples:
            return None
        return statistics.median(sample.value for sample in self.reference_samples)

    @property
    def ratio(self) -> float | None:
        reference = self.reference_value
        if reference is None:
            return None
        return self.value / reference if self.higher_is_better else reference / self.value

    def to_json(self) -> dict[str, Any]:
        """`samples` holds the raw values as they were taken: ours, the reference, ours, ..."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "reference": self.reference,
            "reference_value": self.reference_value,
            "ratio": self.ratio,
            "cpu_us_per_op": _median_cpu(self.ours),
            "reference_cpu_us_per_op": _median_cpu(self.reference_samples),
            "samples": _interleaved(self.ours, self.reference_samples),
            "verified": self.verified,
            "reference_run": self.reference_run,
        }


def _median_cpu(samples: Iterable[Sample]) -> float | None:
    known = [sample.cpu_us_per_op for sample in samples if sample.cpu_us_per_op is not None]
    return statistics.median(known) if known else None


def _interleaved(ours: Sequence[Sample], reference: Sequence[Sample]) -> list[float]:
    if not reference:
        return [sample.value for sample in ours]
    pairs = zip(ours, reference, strict=True)
    return [sample.value for pair in pairs for sample in pair]


def in_turn(
    count: int, ours: Callable[[], Sample], reference: Callable[[], Sample]
) -> tuple[list[Sample], list[Sample]]:
    """Takes `count` samples of each, alternating, so that drift of the machine hits both."""
    taken: tuple[list[Sample], list[Sample]] = ([], [])
    for _ in range(count):
        taken[0].append(ours())
        taken[1].append(reference())
    return taken


@dataclass(frozen=True)
class Usage:
    """What a measured piece of work took."""

    seconds: float
    cpu_seconds: float

    def cpu_us_per(self, operations: float) -> float:
        return self.cpu_seconds * 1e6 / operations


def measured(work: Callable[[], object], processes: Collection[int]) -> Usage:
    """Runs `work` and accounts the CPU of these processes and their descendants.

    A descendant that starts and ends meanwhile is not seen; keep workers alive over the work.
    """
    cpu_before = _cpu_by_process(processes)
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    cpu_after = _cpu_by_process(processes)
    used = sum(after - cpu_before.get(pid, 0.0) for pid, after in cpu_after.items())
    return Usage(seconds, used)


def _cpu_by_process(roots: Collection[int]) -> dict[int, float]:
    pids = set(roots)
    for root in roots:
        pids.update(child.pid for child in psutil.Process(root).children(recursive=True))
    return {pid: seconds for pid in pids if (seconds := _cpu_seconds(pid)) is not None}


def _cpu_seconds(pid: int) -> float | None:
    clock = (~pid << 3) | _SCHEDULER_CLOCK  # as clock_getcpuclockid(3) builds it
    try:
        return time.clock_gettime(clock)
    except OSError:  # it has just ended
        return None


@contextmanager
def server_process(module: str, *arguments: str) -> Iterator[tuple[int, Any]]:
    """Runs `python -m module` as a server that prints one JSON line when it serves.

    Yields its process id and that line's value. The server must end when its standard input does
    (see `until_parent_ends`), so that it never outlives the benchmark.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{module} {' '.join(arguments)} did not start")
            yield process.pid, json.loads(line)
        finally:
            process.stdin.close()
            try:
                process.wait(_SERVER_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def announce(value: Any) -> None:
    """Tells `server_process` that this server serves, and where."""
    print(json.dumps(value), flush=True)


def until_parent_ends() -> None:
    """Blocks a server until the benchmark that started it is done or gone."""
    sys.stdin.buffer.read()


Measure = Callable[[Options], Iterable[Row]]


def main(
    word: str, row_names: Sequence[str], measure: Measure, arguments: Sequence[str] | None = None
) -> int:
    """Runs a benchmark from its command line; returns the exit code of the contract."""
    parsed = _parser(word, row_names).parse_args(arguments)
    options = Options(parsed.quick, parsed.peers, parsed.only)
    rows: list[Row] = []
    try:
        for row in measure(options):
            rows.append(row)
            print(_line(row), flush=True)
    except Exception:
        traceback.print_exc()
        print(f"bench {word}: could not run")
        return 2
    if parsed.json is not None:
        Path(parsed.json).write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    unverified = [row.name for row in rows if not row.verified]
    verdict = f"not verified: {', '.join(unverified)}" if unverified else "all verified"
    print(f"bench {word}: {len(rows)} rows, {verdict}")
    return 1 if unverified else 0


def _parser(word: str, row_names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"run bench {word}")
    parser.add_argument("--quick", action="store_true", help="small shapes, done in 40 s")
    parser.add_argument("--peers", action="store_true", help="also measure installed peers")
    parser.add_argument("--only", choices=row_names, help="one row")
    parser.add_argument("--json", metavar="PATH", help="write the rows there")
    return parser


def _line(row: Row) -> str:
    parts = [f"{row.name:<28} {_number(row.value):>10} {row.unit}"]
    cpu = _median_cpu(row.ours)
    if cpu is not None:
        parts.append(f"{_number(cpu)} us CPU")
    if row.reference is not None and row.reference_value is not None and row.ratio is not None:
        parts.append(f"{row.reference}: {_number(row.reference_value)}")
        reference_cpu = _median_cpu(row.reference_samples)
        if reference_cpu is not None:
            parts.append(f"{_number(reference_cpu)} us CPU")
        parts.append(f"ratio {row.ratio:.2f}")
    return " | ".join(parts)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
