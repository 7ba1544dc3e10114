"""Modes of `open`, spelled as for the builtin."""

import functools
import os
from dataclasses import dataclass
from typing import Final

from fs3.errors import InvalidArgument

_CREATION: Final = {
    "r": 0,
    "w": os.O_CREAT | os.O_TRUNC,
    "a": os.O_CREAT | os.O_APPEND,
    "x": os.O_CREAT | os.O_EXCL,
}


@dataclass(frozen=True, slots=True)
class Mode:
    """A parsed mode; `flags` are the POSIX ones for the metadata service."""

    text: str
    flags: int
    readable: bool
    writable: bool
    append: bool
    binary: bool


@functools.lru_cache(maxsize=64)
def parse_mode(text: str) -> Mode:
    """`'rb'`, `'w'`, `'a+'`, `'xb'`, ...

    Raises:
        InvalidArgument: not a mode of the builtin `open`.
    """
    letters = set(text)
    kinds = letters & set("rwax")
    if (
        len(letters) != len(text)
        or len(kinds) != 1
        or letters - set("rwaxbt+")
        or {*"bt"} <= letters
    ):
        raise InvalidArgument(
            f"{text!r} is not a mode: exactly one of r, w, a, x, then optionally b or t, and +"
        )
    kind = kinds.pop()
    update = "+" in letters
    readable = update or kind == "r"
    writable = update or kind != "r"
    access = os.O_RDWR if update else os.O_RDONLY if kind == "r" else os.O_WRONLY
    return Mode(
        text=text,
        flags=access | _CREATION[kind],
        readable=readable,
        writable=writable,
        append=kind == "a",
        binary="b" in letters,
    )
