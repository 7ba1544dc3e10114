"""What driver and workers say to each other: pickled messages behind an 8-byte length.

Both ends are the same installation started by the same user, joined by a socket pair that nobody
else can open; so pickle is safe here and versions cannot differ.
"""

from __future__ import annotations

import dataclasses
import pickle
import socket
import struct
from typing import TYPE_CHECKING, Any

from smallpond.core.events import AttemptId, ErrorKind, StageId, TaskId

if TYPE_CHECKING:  # the driver starts workers before it has loaded Arrow
    from smallpond.operators.step import TaskOutput
    from smallpond.plan.stage import ResolvedInput

_LENGTH = struct.Struct("<Q")


@dataclasses.dataclass(frozen=True)
class LearnStage:
    """Driver: the pipeline of a stage, as cloudpickle bytes; sent before its first attempt."""

    stage: StageId
    pipeline: bytes


@dataclasses.dataclass(frozen=True)
class ForgetStage:
    """Driver: nothing of this stage will run again."""

    stage: StageId


@dataclasses.dataclass(frozen=True)
class RunAttempt:
    """Driver: run this; the worker answers with `Finished` or `Failed`."""

    attempt: AttemptId
    inputs: tuple[ResolvedInput, ...]
    threads: int
    memory_bytes: int
    output_path: str
    inline_bytes_max: int


@dataclasses.dataclass(frozen=True)
class Ready:
    """Worker: imports are done."""

    pid: int


@dataclasses.dataclass(frozen=True)
class Metrics:
    """What an attempt cost.

    Attributes:
        wall_s, cpu_s: of the attempt, user and system time of the worker together.
        memory_peak_bytes: largest resident size of the worker so far.
    """

    wall_s: float
    cpu_s: float
    memory_peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Finished:
    """Worker: the attempt's output is complete."""

    attempt: AttemptId
    output: TaskOutput
    metrics: Metrics


@dataclasses.dataclass(frozen=True)
class Failed:
    """Worker: the attempt raised.

    Attributes:
        label, detail: the step, and the query, row or batch it was at.
        error: class and message of the exception.
        trace: where in the user's code, one frame per line; may be empty.
        exception: the exception itself, pickled; empty if it cannot be.
        lost: tasks whose stored output was gone.
    """

    attempt: AttemptId
    kind: ErrorKind
    label: str
    detail: str
    error: str
    trace: str
    exception: bytes
    lost: tuple[TaskId, ...] = ()


def send(peer: socket.socket, message: object) -> None:
    """Raises:
    OSError: the peer is gone.
    """
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    peer.sendall(_LENGTH.pack(len(body)))
    peer.sendall(body)


def receive(peer: socket.socket) -> Any:
    """The next message; None when the peer has closed its end or died."""
    header = _receive_exactly(peer, _LENGTH.size)
    if header is None:
        return None
    body = _receive_exactly(peer, _LENGTH.unpack(header)[0])
    return None if body is None else pickle.loads(body)


def _receive_exactly(peer: socket.socket, count: int) -> bytearray | None:
    buffer = bytearray(count)
    view = memoryview(buffer)
    while view:
        try:
            received = peer.recv_into(view)
        except OSError:
            return None
        if received == 0:
            return None
        view = view[received:]
    return buffer
