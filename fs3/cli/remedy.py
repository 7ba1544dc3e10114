"""Errors as one line for people: what, why, and what to do about it."""

from typing import Final

from fs3 import errors

_REMEDIES: Final[dict[type[OSError], str]] = {
    errors.NotFound: "`fs3 ls` of the directory above shows what is there",
    errors.AlreadyExists: "remove it first, or choose another name",
    errors.PermissionDenied: "ask its owner, or see `fs3 stat` for its mode",
    errors.NotADirectory: "a part of the path is a file; see `fs3 stat`",
    errors.IsADirectory: "use -r for directories",
    errors.NotEmpty: "use `fs3 rm -r` to remove it with everything in it",
    errors.NoSpace: "remove files or add nodes; see `fs3 df`",
    errors.VersionMismatch: "use the fs3 version that the cluster runs; see `fs3 status`",
    errors.Unavailable: "see `fs3 health`",
    errors.TimedOut: "see `fs3 health`",
    errors.Internal: "see the servers' logs, and report it",
}


def explain(error: OSError) -> str:
    """`subject: reason; remedy`; errors of the local disk have no remedy of ours."""
    if not isinstance(error, errors.Fs3Error):
        subject = f"{error.filename}: " if error.filename else ""
        return f"{subject}{error.strerror or error}"
    remedy = _REMEDIES.get(type(error))
    if remedy is None or ";" in error.message:
        return error.message
    return f"{error.message}; {remedy}"
