"""Progress bars on standard error, one per stage; a plain line each where nobody watches."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from deploy.demo.stage import Advance


@contextmanager
def bar(console: Console, title: str, total: int | None) -> Iterator[Advance]:
    """A bar up to `total`, or one that only shows that something goes on."""
    columns = [TextColumn(f"{title:<28}"), BarColumn(30), TimeElapsedColumn()]
    if total is not None:
        columns.insert(2, MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
        whole = total or 1
        progress.update(task, total=whole, completed=whole)
