"""What happened, for people and as the JSON object that scripts read."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape

from deploy.demo.cluster import Started
from deploy.demo.failure import Survived
from deploy.demo.ingest import Ingested
from deploy.demo.job import Tokenised
from deploy.demo.restore import Restored, Saved
from deploy.demo.train import Trained
from fs3.units import MIB, format_bytes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """One stage: how long it took, and its result or why it failed."""

    name: str
    seconds: float
    result: object | None
    error: str | None


@dataclass(slots=True)
class Report:
    """The stages that ran, in order."""

    stages: list[StageOutcome] = field(default_factory=list)

    def result(self, kind: type[T]) -> T | None:
        return next((s.result for s in self.stages if isinstance(s.result, kind)), None)

    @property
    def failed(self) -> StageOutcome | None:
        return next((stage for stage in self.stages if stage.error is not None), None)

    def to_json(self, *, ok: bool) -> str:
        """One line; the value of a stage that was not reached is null."""
        started, ingested = self.result(Started), self.result(Ingested)
        tokenised, trained = self.result(Tokenised), self.result(Trained)
        survived = self.result(Survived)
        document: dict[str, Any] = {
            "ok": ok,
            "stages": [_stage(outcome) for outcome in self.stages],
            "files": ingested and ingested.files,
            "bytes": ingested and ingested.bytes,
            "rows": tokenised and tokenised.rows,
            "samples_per_s": trained and round(trained.samples_per_s, 1),
            "stall_s": survived and round(survived.stall_s, 3),
            "retried_ops": survived and survived.retried_ops,
            "loss_before": trained and round(trained.loss_before, 4),
            "loss_after": trained and round(trained.loss_after, 4),
            "killed_node": survived and survived.killed_node,
            "url": started and started.url,
        }
        return json.dumps(document)


def print_summary(console: Console, report: Report) -> None:
    """One line per stage."""
    for stage in report.stages:
        mark = "[green]ok    [/]" if stage.error is None else "[red]failed[/]"
        text = describe(stage.result) if stage.error is None else stage.error
        line = f"{mark} {stage.name:<10} {stage.seconds:6.1f} s  {escape(text)}"
        console.print(line, soft_wrap=True)


def print_where(console: Console, directory: Path) -> None:
    """How to look at a cluster that was kept in `directory`."""
    console.print(f"The cluster is up, in {directory}. Look at it:", soft_wrap=True)
    for command, purpose in (
        ("status", "nodes and chains; one node is dead"),
        ("ls -l /demo", "what the demo wrote"),
        ("down", "stops it; then remove the directory"),
    ):
        console.print(f"  fs3 --dir {directory} {command:<12} # {purpose}", soft_wrap=True)


def describe(result: object) -> str:
    """What a stage did, as a sentence."""
    match result:
        case Started(url, nodes, replicas):
            return f"{nodes} storage nodes, every byte on {replicas} of them, at {url}"
        case Ingested(_, files, size):
            return f"{files} files, {format_bytes(size)}, each read back with its checksum"
        case Tokenised():
            return (
                f"{result.rows} distinct documents, {result.tokens / 1e6:.1f} M tokens; DuckDB "
                "counts the same in the local files"
            )
        case Trained():
            return (
                f"{result.steps} steps on {result.device}, {result.samples_per_s:.0f} samples/s, "
                f"{result.waiting_s:.2f} s of waiting for data; loss on unseen files from "
                f"{result.loss_before:.2f} to {result.loss_after:.2f} "
                f"(single bytes allow {result.byte_entropy:.2f})"
            )
        case Saved(path, size, seconds):
            return f"{format_bytes(size)} in {path} at {size / MIB / seconds:.0f} MiB/s"
        case Survived():
            return (
                f"{result.killed_node} killed under load: {result.operations} reads and writes, "
                f"none failed, {result.retried_ops} retried; the longest took "
                f"{result.stall_s:.2f} s (before the kill {result.usual_s:.2f} s)"
            )
        case Restored(tensors, seconds, loss):
            return (
                f"{tensors} tensors bit-equal, read in {seconds:.2f} s with one node dead; the "
                f"next step has the same loss, {loss:.4f}"
            )
    raise AssertionError(f"no words for {result!r}")


def _stage(outcome: StageOutcome) -> dict[str, Any]:
    fields = {"name": outcome.name, "seconds": round(outcome.seconds, 3)}
    return fields | {"ok": outcome.error is None, "error": outcome.error}
