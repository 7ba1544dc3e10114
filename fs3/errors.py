"""Every failure a caller can meet: a kind, its stable number, its errno, and what to do about it.

One table, read by Python and (by number) by the native part. Kinds that mean the same as a Python
builtin inherit from it, so `except FileNotFoundError` works in user code and in fsspec. A new kind
is added only if some caller would act differently on it; numbers are never reused.
"""

import enum
import errno as posix
import os
from typing import ClassVar, Final, Self


class Advice(enum.Enum):
    """What the caller of a failed operation should do."""

    FIX_REQUEST = "fix_request"
    RETRY = "retry"
    REFRESH_ROUTING = "refresh_routing"
    REOPEN = "reopen"
    GIVE_UP = "give_up"


class Fs3Error(OSError):
    """Base of all fs3 errors. `str(error)` is one line with the remedy.

    Attributes:
        number: stable number of the kind, as in frames.
        errno: POSIX number; the kind's own unless the raiser gave a more precise one.
        grpc_status: name of the gRPC status that carries this kind.
        advice: what to do.
        message: the text without the errno prefix.
    """

    number: ClassVar[int]
    default_errno: ClassVar[int]
    grpc_status: ClassVar[str]
    advice: ClassVar[Advice]

    def __new__(cls, message: str, *, errno: int | None = None) -> Self:  # noqa: ARG004
        return super().__new__(cls, message)

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = self.default_errno if errno is None else errno
        self.message = message
        self.strerror = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.number, self.errno, self.message)


class InvalidArgument(Fs3Error, ValueError):
    number, default_errno, grpc_status = 1, posix.EINVAL, "INVALID_ARGUMENT"
    advice = Advice.FIX_REQUEST


class NotFound(Fs3Error, FileNotFoundError):
    number, default_errno, grpc_status = 2, posix.ENOENT, "NOT_FOUND"
    advice = Advice.FIX_REQUEST


class AlreadyExists(Fs3Error, FileExistsError):
    number, default_errno, grpc_status = 3, posix.EEXIST, "ALREADY_EXISTS"
    advice = Advice.FIX_REQUEST


class PermissionDenied(Fs3Error, PermissionError):
    number, default_errno, grpc_status = 4, posix.EACCES, "PERMISSION_DENIED"
    advice = Advice.FIX_REQUEST


class NotADirectory(Fs3Error, NotADirectoryError):
    number, default_errno, grpc_status = 5, posix.ENOTDIR, "FAILED_PRECONDITION"
    advice = Advice.FIX_REQUEST


class IsADirectory(Fs3Error, IsADirectoryError):
    number, default_errno, grpc_status = 6, posix.EISDIR, "FAILED_PRECONDITION"
    advice = Advice.FIX_REQUEST


class NotEmpty(Fs3Error):
    number, default_errno, grpc_status = 7, posix.ENOTEMPTY, "FAILED_PRECONDITION"
    advice = Advice.FIX_REQUEST


class NoSpace(Fs3Error):
    number, default_errno, grpc_status = 8, posix.ENOSPC, "RESOURCE_EXHAUSTED"
    advice = Advice.FIX_REQUEST


class Busy(Fs3Error, BlockingIOError):
    """A bound is reached at the other side, or the thing is in use: try again a little later."""

    number, default_errno, grpc_status = 9, posix.EAGAIN, "RESOURCE_EXHAUSTED"
    advice = Advice.RETRY


class Unavailable(Fs3Error, ConnectionError):
    number, default_errno, grpc_status = 10, posix.EHOSTUNREACH, "UNAVAILABLE"
    advice = Advice.RETRY


class TimedOut(Fs3Error, TimeoutError):
    number, default_errno, grpc_status = 11, posix.ETIMEDOUT, "DEADLINE_EXCEEDED"
    advice = Advice.RETRY


class StaleRouting(Fs3Error):
    """The chain version or the epoch in the request is not the receiver's."""

    number, default_errno, grpc_status = 12, posix.ESTALE, "ABORTED"
    advice = Advice.REFRESH_ROUTING


class StaleHandle(Fs3Error):
    """The file was cut or replaced since it was opened."""

    number, default_errno, grpc_status = 13, posix.ESTALE, "ABORTED"
    advice = Advice.REOPEN


class Corrupt(Fs3Error):
    """Bytes failed their checksum and no replica had good ones."""

    number, default_errno, grpc_status = 14, posix.EIO, "DATA_LOSS"
    advice = Advice.GIVE_UP


class VersionMismatch(Fs3Error):
    """Peers of different protocol versions or clusters met."""

    number, default_errno, grpc_status = 15, posix.EPROTO, "FAILED_PRECONDITION"
    advice = Advice.FIX_REQUEST


class Conflict(Fs3Error):
    """A concurrent transaction won; nothing of this one was applied."""

    number, default_errno, grpc_status = 16, posix.EAGAIN, "ABORTED"
    advice = Advice.RETRY


class Internal(Fs3Error):
    """A defect of fs3 itself; the message and the server's log say where."""

    number, default_errno, grpc_status = 17, posix.EIO, "INTERNAL"
    advice = Advice.GIVE_UP


KINDS: Final[dict[int, type[Fs3Error]]] = {
    kind.number: kind
    for kind in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        NotADirectory,
        IsADirectory,
        NotEmpty,
        NoSpace,
        Busy,
        Unavailable,
        TimedOut,
        StaleRouting,
        StaleHandle,
        Corrupt,
        VersionMismatch,
        Conflict,
        Internal,
    )
}

_BY_ERRNO: Final = {kind.default_errno: kind for kind in reversed(KINDS.values())} | {
    posix.EPERM: PermissionDenied
}


def from_number(number: int, message: str, *, errno: int | None = None) -> Fs3Error:
    """The error of a status number from the wire; an unknown number becomes `Internal`."""
    kind = KINDS.get(number)
    if kind is None:
        return Internal(f"unknown error number {number} (newer peer?): {message}")
    return kind(message, errno=errno)


def from_errno(number: int, subject: str) -> Fs3Error:
    """The error for a POSIX errno about `subject`, e.g. `from_errno(errno.ELOOP, path)`."""
    kind = _BY_ERRNO.get(number, InvalidArgument)
    return kind(f"{subject}: {os.strerror(number)}", errno=number)


def _rebuild(number: int, errno: int, message: str) -> Fs3Error:
    return from_number(number, message, errno=errno)
