"""A `bytes` object filled in place: what `read` returns must not be copied once more.

CPython lets whoever has just made a bytes object fill it before anybody else sees it
(PyBytes_FromStringAndSize with NULL). Without this a large read costs a second buffer, its page
faults and a copy, more than half of its time. Small reads are cheaper through a scratch array.

A read that is interrupted may still be writing when its caller has gone: the view given to `fill`
keeps the memory for as long as anybody holds it.
"""

import ctypes
from collections.abc import Callable
from typing import Final

import numpy as np

_IN_PLACE_BYTES_MIN: Final = 128 * 1024

_make = ctypes.pythonapi.PyBytes_FromStringAndSize
_make.restype = ctypes.py_object
_make.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_address = ctypes.pythonapi.PyBytes_AsString
_address.restype = ctypes.c_void_p
_address.argtypes = [ctypes.py_object]


class _Memory:
    """Shows a bytes object to numpy as writable memory, and keeps it."""

    def __init__(self, made: bytes) -> None:
        self.made = made
        self.__array_interface__ = {
            "version": 3,
            "shape": (len(made),),
            "typestr": "|u1",
            "data": (_address(made), False),
        }


def filled(size: int, fill: Callable[[memoryview], int]) -> bytes:
    """What `fill` puts into memory of `size` bytes; it returns how many that were."""
    if size < _IN_PLACE_BYTES_MIN:
        scratch = np.empty(size, np.uint8)
        return scratch[: fill(scratch.data)].tobytes()
    made: bytes = _make(None, size)
    count = fill(np.asarray(_Memory(made)).data)
    return made if count == size else made[:count]
