"""Copying whole files between the local disk, fs3 and streams, in large pieces.

`on_bytes` is called with the size of each piece once it has been handed on, for progress bars.
"""

import os
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from typing_extensions import Buffer

from fs3.client.file import File
from fs3.client.filesystem import FileSystem
from fs3.client.path import StrPath
from fs3.units import MIB

PIECE_BYTES: Final = 8 * MIB
OnBytes = Callable[[int], object]


class Source(Protocol):
    def readinto(self, buffer: Buffer, /) -> int | None: ...


class Sink(Protocol):
    def write(self, data: Buffer, /) -> int | None: ...


def pump(source: Source, sink: Sink, on_bytes: OnBytes) -> int:
    """Copies until the source ends; the number of bytes."""
    piece = memoryview(np.empty(PIECE_BYTES, np.uint8).data)
    total = 0
    while count := source.readinto(piece):
        rest = piece[:count]
        while len(rest):  # a raw sink may take less
            rest = rest[sink.write(rest) :]
        total += count
        on_bytes(count)
    return total


def upload(fs: FileSystem, source: StrPath, target: StrPath, on_bytes: OnBytes) -> int:
    """A local file to fs3, keeping its permissions."""
    with open(source, "rb", buffering=0) as reader:
        permissions = os.fstat(reader.fileno()).st_mode & 0o777
        with fs.open(target, "wb", permissions=permissions) as writer:
            return pump(reader, writer, on_bytes)


def download(fs: FileSystem, source: StrPath, target: StrPath, on_bytes: OnBytes) -> int:
    """A file on fs3 to the local disk, where its permissions are kept as far as umask allows."""
    with fs.open(source, "rb") as reader:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _permissions(reader))
        with open(descriptor, "wb", buffering=0) as writer:
            return pump(reader, writer, on_bytes)


def copy(fs: FileSystem, source: StrPath, target: StrPath, on_bytes: OnBytes) -> int:
    """A file on fs3 to another one there."""
    with (
        fs.open(source, "rb") as reader,
        fs.open(target, "wb", permissions=_permissions(reader)) as writer,
    ):
        return pump(reader, writer, on_bytes)


def _permissions(file: File) -> int:
    return file.attributes().st_mode & 0o777
