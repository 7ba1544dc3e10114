"""A report and a comparison as plain text for a terminal."""

from collections.abc import Iterable, Iterator
from typing import Final

from trainer_io.moe.profile.compare import Change
from trainer_io.moe.profile.gaps import Gap
from trainer_io.moe.profile.kineto import Trace
from trainer_io.moe.profile.overlap import OverlapReport

KERNELS_SHOWN: Final = 12
GAPS_SHOWN: Final = 5
NAME_WIDTH: Final = 60


def report_lines(
    trace: Trace, report: OverlapReport, gaps: Iterable[Gap], split: dict[str, int]
) -> Iterator[str]:
    """Figures first, then streams, kernels and gaps."""
    where = f", {trace.gpu_name} of {trace.sm_count} SMs" if trace.gpu_name else ""
    yield f"{trace.path}: rank {trace.rank} of {trace.world_size}{where}"
    yield ""
    yield from _figures(report)
    for kind, count in split.items():
        yield f"{kind + ' SMs':<18} {count:>10} of {trace.sm_count}, median over its kernel time"
    yield ""
    for name, busy in report.streams.items():
        yield f"stream {name:<11} {busy:>10.2f} ms busy, {_share(busy, report.span_ms)}"
    yield ""
    yield f"{'total ms':>10} {'calls':>6}  {'kind':<13}  kernel"
    for kernel in report.kernels[:KERNELS_SHOWN]:
        name = _short(kernel.name)
        yield f"{kernel.total_ms:>10.2f} {kernel.calls:>6}  {kernel.kind:<13}  {name}"
    for gap in list(gaps)[:GAPS_SHOWN]:
        yield (
            f"idle {gap.length_ms:.3f} ms at {gap.begin_ms:.2f} ms, after {_short(gap.before)}, "
            f"before {_short(gap.after)}"
        )


def comparison_lines(changes: Iterable[Change]) -> Iterator[str]:
    """One line a figure, regressions marked."""
    for change in changes:
        mark = "  WORSE" if change.is_regression else ""
        yield (
            f"{change.figure:<12} {change.before_ms:>10.3f} -> {change.after_ms:>10.3f} ms "
            f"{change.growth:>+8.1%}{mark}"
        )


def _figures(report: OverlapReport) -> Iterator[str]:
    moving = report.communication_ms
    notes = {
        "span": (report.span_ms, "first GPU event to last"),
        "idle": (report.idle_ms, _share(report.idle_ms, report.span_ms)),
        "computation": (report.computation_ms, _share(report.computation_ms, report.span_ms)),
        "communication": (moving, f"{report.hidden_fraction:.1%} hidden behind computation"),
        "exposed": (report.exposed_ms, "communication with no computation beside it"),
        "waiting": (report.waiting_ms, f"{_share(report.waiting_ms, moving)} of communication"),
    }
    for name, (value, note) in notes.items():
        yield f"{name:<18} {value:>10.2f} ms  {note}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"


def _short(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 3] + "..."
