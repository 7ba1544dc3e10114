"""The error table: stable numbers, builtin parents, and agreement with the native part."""

import errno
import pickle
import re
from pathlib import Path

import pytest

from fs3 import errors

NATIVE = Path(__file__).parents[2] / "fs3/native/base/status.h"


def test_numbers_are_unique_and_dense() -> None:
    assert sorted(errors.KINDS) == list(range(1, len(errors.KINDS) + 1))


def test_native_table_is_the_same() -> None:
    native = {
        name: int(number)
        for name, number in re.findall(r"k(\w+) = (\d+),", NATIVE.read_text())
        if name != "Ok"
    }
    assert native == {kind.__name__: number for number, kind in errors.KINDS.items()}


@pytest.mark.parametrize("kind", errors.KINDS.values())
def test_error_survives_the_wire_and_pickle(kind: type[errors.Fs3Error]) -> None:
    original = kind("/a: something; do that")
    again = errors.from_number(kind.number, original.message, errno=original.errno)
    copied = pickle.loads(pickle.dumps(original))
    for error in (again, copied):
        assert type(error) is kind
        assert error.errno == kind.default_errno
        assert str(error) == "/a: something; do that"


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.NotFound, FileNotFoundError),
        (errors.AlreadyExists, FileExistsError),
        (errors.PermissionDenied, PermissionError),
        (errors.NotADirectory, NotADirectoryError),
        (errors.IsADirectory, IsADirectoryError),
        (errors.Unavailable, ConnectionError),
        (errors.TimedOut, TimeoutError),
        (errors.InvalidArgument, ValueError),
    ],
)
def test_user_code_catches_the_builtin(
    kind: type[errors.Fs3Error], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin):
        raise kind("x")


def test_precise_errno_is_kept() -> None:
    error = errors.from_errno(errno.ELOOP, "/a/b")
    assert (error.errno, type(error)) == (errno.ELOOP, errors.InvalidArgument)
    assert str(error) == "/a/b: Too many levels of symbolic links"
    assert isinstance(errors.from_errno(errno.EPERM, "/a"), PermissionError)
    assert type(errors.from_errno(errno.ENOENT, "/a")) is errors.NotFound


def test_unknown_number_names_the_likely_cause() -> None:
    error = errors.from_number(999, "what")
    assert isinstance(error, errors.Internal)
    assert "newer peer" in str(error)
