"""What commands print: plain text or one JSON value, and progress on anything longer than a second.

Progress goes to standard error and only to a terminal, so that pipes and logs stay clean.
"""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import click

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

QUIET_S: Final = 1.0
"""Nothing is shown before that."""

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON value on stdout.")


def print_json(value: Any) -> None:
    """One JSON value on one line."""
    import msgspec

    click.echo(msgspec.json.encode(value))


class Progress:
    """A bar of bytes that appears after a second: `with Progress("cp") as bar: bar.advance(n)`.

    Attributes:
        total: bytes in all as far as known; it may grow while work is being found.
        done: bytes so far.
    """

    def __init__(
        self, title: str, total: int | None = None, *, visible: bool | None = None
    ) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self._visible = sys.stderr.isatty() if visible is None else visible
        self._started = time.monotonic()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def advance(self, count: int) -> None:
        """Counts `count` more bytes. Thread-safe."""
        self.done += count
        if self._visible and self._bar is None and time.monotonic() - self._started > QUIET_S:
            self._show()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done, total=self.total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        self._task = bar.add_task(self.title, total=self.total)
        self._bar = bar
