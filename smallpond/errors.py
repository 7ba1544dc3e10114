"""The errors a smallpond user meets.

There are few, because a caller can do few different things: fix the plan, fix the task, or ask for
more resources. Each message is complete in itself: what failed, where in the user's code, on which
partition and input, and what to do.
"""

from __future__ import annotations

from typing import Any


class SmallpondError(Exception):
    """Base of everything smallpond raises on purpose."""


class PlanError(SmallpondError, AssertionError):
    """The plan cannot be executed as written, found before anything ran.

    It is also an `AssertionError`, which is what the published package raises here.
    """


class OutputExists(SmallpondError, FileExistsError):
    """`write_parquet(mode="error")` found files in the output directory."""


class JobCancelled(SmallpondError):
    """The computation was interrupted or its session was shut down while it ran."""


class TaskFailed(SmallpondError):
    """One task failed for good; the message names partition, input and SQL text or function.

    The raised class also inherits from the class of the original exception where that is possible,
    so that `except ZeroDivisionError` around a computation works; `__cause__` is the original.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


def task_failed(message: str, cause: BaseException | None) -> TaskFailed:
    """A `TaskFailed` that is also an instance of the class of `cause`."""
    error = TaskFailed(message)
    if isinstance(cause, Exception) and not isinstance(cause, TaskFailed):
        error = _as_subclass_of(type(cause), message) or error
    error.__cause__ = cause
    return error


def _as_subclass_of(kind: type[Exception], message: str) -> TaskFailed | None:
    """None where Python cannot combine the two classes (incompatible memory layouts)."""
    try:
        combined: Any = type(f"TaskFailed({kind.__name__})", (TaskFailed, kind), {})
        error: TaskFailed = combined.__new__(combined, message)
        error.args = (message,)
    except TypeError:
        return None
    return error
