"""The progress a person sees: one bar per stage on standard error, if that is a terminal."""

from __future__ import annotations

import sys

from smallpond.execution.runner import JobHandle

_QUIET_S = 0.5  # what ends sooner needs no bar
_REFRESH_S = 0.1


def wait(handle: JobHandle) -> None:
    """Return when the job has ended, showing how it goes meanwhile."""
    if handle.finished.wait(_QUIET_S) or not sys.stderr.isatty():
        handle.finished.wait()
        return
    _show(handle)


def _show(handle: JobHandle) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {s.id: bars.add_task(s.label, total=s.partitions) for s in handle.stages}
        while not handle.finished.wait(_REFRESH_S):
            for stage, task in tasks.items():
                bars.update(task, completed=handle.done[stage])
