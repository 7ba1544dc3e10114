"""The demo as a command: what it prints, and that it leaves nothing behind.

Exit codes: 0 every stage did and verified what it should; 1 a stage failed; 2 the demo could not
start; 130 interrupted. The last line is the verdict, or with `--json` the JSON object.
"""

import signal
import sys
from types import FrameType
from typing import Final

from rich.console import Console

from deploy.demo.options import Options
from deploy.demo.progress import bar
from deploy.demo.report import print_summary, print_where
from deploy.demo.runner import Demo
from deploy.demo.stage import FULL, QUICK
from deploy.demo.workspace import Workspace

GOOD: Final = 0
FAILED: Final = 1
COULD_NOT_RUN: Final = 2
INTERRUPTED: Final = 130

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """A signal handler that raises, and remembers: libraries turn it into errors of their own."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.came = True
        raise KeyboardInterrupt


def main(options: Options) -> int:
    interruption = Interruption()
    for number in SIGNALS:
        signal.signal(number, interruption)
    try:
        workspace = Workspace.make(options.directory)
    except OSError as error:
        print(f"demo: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    scale = QUICK if options.quick else FULL
    bars = Console(stderr=True)
    demo = Demo(workspace.directory, scale, bars, keep=options.keep)
    console = Console(highlight=False, soft_wrap=True)
    try:
        code, verdict = _run(demo, workspace, console, interruption)
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave a cluster
        if not options.keep:
            with bar(bars, "clean up", None):
                demo.stop()
                workspace.remove()
    if options.keep:
        print_where(console, demo.cluster.directory)
    else:
        console.print("Everything was stopped and removed; --keep leaves the cluster to look at.")
    console.print(verdict)
    if options.as_json:
        print(demo.report.to_json(ok=code == GOOD), flush=True)
    return code


def _run(
    demo: Demo, workspace: Workspace, console: Console, interruption: Interruption
) -> tuple[int, str]:
    """Exit code and verdict, after printing what happened."""
    try:
        demo.run()
    except KeyboardInterrupt:
        return INTERRUPTED, "demo: interrupted"
    except Exception as error:
        if interruption.came:
            return INTERRUPTED, "demo: interrupted"
        print_summary(console, demo.report)
        kept = workspace.keep_logs(demo.log_directories)
        failed = demo.report.failed
        where = f"stage {failed.name!r} failed" if failed else f"failed: {error}"
        return FAILED, f"demo: {where}; logs and the traceback are in {kept}"
    print_summary(console, demo.report)
    seconds = sum(stage.seconds for stage in demo.report.stages)
    return GOOD, f"demo: ok, {len(demo.report.stages)} stages verified in {seconds:.1f} s"
