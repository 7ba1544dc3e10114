"""A plan in words: one line per stage and per step in it, first what is read first."""

from __future__ import annotations

from smallpond.operators.shuffle import Shuffle
from smallpond.operators.sql import Sql
from smallpond.plan.planner import Plan
from smallpond.plan.selection import OfFiles
from smallpond.plan.stage import Apply, Leaf, Selection, Stage


def explained(plan: Plan) -> str:
    """The plan as text; "computed" if there is nothing to do."""
    lines = [line for stage in plan.stages for line in _stage(stage)]
    return "\n".join(lines) or "computed"


def _stage(stage: Stage) -> list[str]:
    tasks = "1 task" if stage.partitions == 1 else f"{stage.partitions} tasks"
    resources = f"{stage.resources.cpus} thread{'s' if stage.resources.cpus > 1 else ''}"
    more = " or more" if stage.elastic else ""
    lines = [f"stage {stage.id}: {tasks}, {resources}{more} each"]
    lines += _node(stage.pipeline.root, stage, "  ")
    sink = stage.pipeline.sink
    if isinstance(sink, Shuffle):
        lines.append(f"  split into {sink.partitioning.partitions}: {sink.partitioning}")
    else:
        lines.append(f"  {type(sink).__name__}")
    return lines


def _node(node: Leaf | Apply, stage: Stage, indent: str) -> list[str]:
    if isinstance(node, Leaf):
        return [f"{indent}read {_selection(stage.inputs[node.index])}"]
    deeper = indent + "  " if len(node.inputs) > 1 else indent
    lines = [line for child in node.inputs for line in _node(child, stage, deeper)]
    text = "; ".join(node.step.statements) if isinstance(node.step, Sql) else str(node.step)
    return [*lines, f"{indent}{node.label}: {text}"]


def _selection(selection: Selection) -> str:
    kind = type(selection).__name__
    if isinstance(selection, OfFiles):
        return f"{kind} of {selection.listing.scan}"
    if selection.stages:
        return f"{kind} of stage {', '.join(str(stage) for stage in selection.stages)}"
    return kind
