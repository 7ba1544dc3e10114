"""From an exception in a worker to one readable message in the user's terminal."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Any

import cloudpickle
import pyarrow as pa

from smallpond.core.events import AttemptId, ErrorKind, TaskId
from smallpond.errors import TaskFailed, task_failed
from smallpond.execution.messages import Failed
from smallpond.io.segments import LostSegment
from smallpond.operators.task import StepFailed
from smallpond.plan.stage import ResolvedInput, ScanInput, Stage

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FRAMES_MAX = 8
_OUT_OF_MEMORY = (MemoryError, pa.ArrowMemoryError)
_TRANSIENT = (ConnectionError, TimeoutError, InterruptedError, BlockingIOError)


def report(attempt: AttemptId, step: StepFailed | None, error: BaseException) -> Failed:
    """What a worker says about an attempt that raised."""
    while isinstance(error, StepFailed):
        step, error = step or error, error.original
    if step is not None:
        error = step.original
    lost: tuple[TaskId, ...] = ()
    if isinstance(error, LostSegment):
        lost = (TaskId(error.stage, error.partition),)
    return Failed(
        attempt=attempt,
        kind=_kind(error),
        label=step.label if step else "",
        detail=step.detail if step else "",
        error=f"{type(error).__name__}: {str(error).strip()}",
        trace=_user_frames(error),
        exception=_pickled(error),
        lost=lost,
    )


def _kind(error: BaseException) -> ErrorKind:
    if isinstance(error, LostSegment):
        return ErrorKind.LOST_INPUT
    if isinstance(error, _OUT_OF_MEMORY) or type(error).__name__ == "OutOfMemoryException":
        return ErrorKind.OUT_OF_MEMORY
    if isinstance(error, _TRANSIENT):
        return ErrorKind.TRANSIENT
    return ErrorKind.USER


def _pickled(error: BaseException) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(data)
    except Exception:
        return b""
    return data


def _user_frames(error: BaseException) -> str:
    """The innermost frames that are the user's or their libraries', one line each."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [i for i, frame in enumerate(frames) if frame.filename.startswith(_PACKAGE)]
    users = frames[inside[-1] + 1 :] if inside else frames
    users = [frame for frame in users if "/duckdb/" not in frame.filename]
    return "\n".join(
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        + (f": {frame.line}" if frame.line else "")
        for frame in users[-_FRAMES_MAX:]
    )


def to_exception(
    failed: Failed, stage: Stage, inputs: Sequence[ResolvedInput], attempts: int
) -> TaskFailed:
    """The exception the user sees; its text is complete."""
    where = f"partition {failed.attempt.task.partition} of {stage.partitions}"
    lines = [f"{failed.label or stage.label} failed in {where}: {failed.error}"]
    if failed.detail:
        lines.append(f"  {failed.detail}")
    lines += [failed.trace] if failed.trace else []
    lines += [f"  input {i}: {describe(source)}" for i, source in enumerate(inputs)]
    if attempts > 1:
        lines.append(f"  after {attempts} attempts")
    cause: Any = cloudpickle.loads(failed.exception) if failed.exception else None
    return task_failed("\n".join(lines), cause)


def describe(source: ResolvedInput) -> str:
    """An input in a few words."""
    if not isinstance(source, ScanInput):
        rows = sum(segment.rows for segment in source.segments)
        return f"{rows} rows of an earlier step"
    pieces = [
        piece.path if piece.is_whole else f"{piece.path} rows {piece.first_row}-{_end(piece)}"
        for piece in source.pieces[:3]
    ]
    more = len(source.pieces) - len(pieces)
    return ", ".join(pieces) + (f" and {more} more files" if more else "")


def _end(piece: Any) -> int:
    return int(piece.first_row + (piece.rows or 0))
