"""What ran when on which worker: one HTML page that opens without network, and a Chrome trace."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

from smallpond.core.events import WorkerId
from smallpond.execution.runner import AttemptRecord

_WIDTH = 1200
_ROW = 22
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7")
_FAILED = "#e15759"
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>smallpond {title}</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 2em; color: #222 }}
svg {{ background: #fafafa; border: 1px solid #ddd }}
rect:hover {{ stroke: #000 }}
table {{ border-collapse: collapse; margin-top: 1.5em }}
td, th {{ padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }}
td:first-child, th:first-child {{ text-align: left }}
.key {{ display: inline-block; width: .8em; height: .8em; margin-right: .5em }}
</style>
<h1>Job {title}</h1>
<p>{attempts} attempts on {workers} workers in {seconds:.2f} s; {failed} failed.</p>
<svg width="{width}" height="{height}" role="img" aria-label="attempts over time by worker">
{bars}
</svg>
<table><tr><th>stage<th>attempts<th>failed<th>rows<th>MiB<th>wall s<th>CPU s<th>peak MiB</tr>
{rows}
</table>
</html>
"""


def as_html(history: Sequence[AttemptRecord], title: str) -> str:
    """A page with a bar per attempt, grouped by worker, and a table of stages."""
    workers = {worker: row for row, worker in enumerate(sorted({r.worker for r in history}))}
    start = min((r.started for r in history), default=0.0)
    seconds = max((r.ended for r in history), default=0.0) - start
    scale = (_WIDTH - 60) / seconds if seconds else 0.0
    stages = list(dict.fromkeys((r.attempt.task.stage, r.label) for r in history))
    colours = {stage: _COLOURS[i % len(_COLOURS)] for i, (stage, _) in enumerate(stages)}
    bars = [f'<text x="4" y="{row * _ROW + 16}">{worker}</text>' for worker, row in workers.items()]
    bars += [_bar(r, 50 + (r.started - start) * scale, scale, workers, colours) for r in history]
    return _PAGE.format(
        title=html.escape(title),
        attempts=len(history),
        workers=len(workers),
        seconds=seconds,
        failed=sum(r.outcome != "ok" for r in history),
        width=_WIDTH,
        height=max(1, len(workers)) * _ROW + 6,
        bars="\n".join(bars),
        rows="\n".join(_table_row(history, stage, label, colours) for stage, label in stages),
    )


def _bar(
    record: AttemptRecord,
    x: float,
    scale: float,
    workers: dict[WorkerId, int],
    colours: dict[int, str],
) -> str:
    task = record.attempt.task
    colour = colours[task.stage] if record.outcome == "ok" else _FAILED
    width = max(1.0, (record.ended - record.started) * scale)
    text = (
        f"{record.label}, partition {task.partition}, attempt {record.attempt.number}: "
        f"{record.ended - record.started:.3f} s, {record.rows} rows, {record.outcome}"
    )
    return (
        f'<rect x="{x:.1f}" y="{workers[record.worker] * _ROW + 3}" width="{width:.1f}" '
        f'height="{_ROW - 4}" fill="{colour}"><title>{html.escape(text)}</title></rect>'
    )


def _table_row(
    history: Sequence[AttemptRecord], stage: int, label: str, colours: dict[int, str]
) -> str:
    own = [r for r in history if r.attempt.task.stage == stage]
    costs = [r.metrics for r in own if r.metrics is not None]
    cells = [
        f'<span class="key" style="background:{colours[stage]}"></span>{html.escape(label)}',
        str(len(own)),
        str(sum(r.outcome != "ok" for r in own)),
        str(sum(r.rows for r in own)),
        f"{sum(r.size_bytes for r in own) / (1 << 20):.1f}",
        f"{sum(r.ended - r.started for r in own):.2f}",
        f"{sum(c.cpu_s for c in costs):.2f}",
        f"{max((c.memory_peak_bytes for c in costs), default=0) / (1 << 20):.0f}",
    ]
    return "<tr><td>" + "<td>".join(cells) + "</tr>"


def as_chrome_trace(history: Sequence[AttemptRecord]) -> str:
    """The same for chrome://tracing and Perfetto."""
    events = [
        {
            "name": record.label,
            "cat": record.outcome,
            "ph": "X",
            "ts": record.started * 1e6,
            "dur": (record.ended - record.started) * 1e6,
            "pid": 0,
            "tid": record.worker,
            "args": {"partition": record.attempt.task.partition, "rows": record.rows},
        }
        for record in history
    ]
    return json.dumps({"traceEvents": events})
