"""Writes a state as one safetensors file, in parallel large chunks, seen whole or not at all."""

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final

from fs3._native import crc32c
from fs3.units import MIB
from trainer_io.checkpoint.dtypes import NAMES, bytes_of
from trainer_io.checkpoint.layout import encode_header, place
from trainer_io.checkpoint.state import flatten
from trainer_io.checkpoint.storage import Storage, WritableFile, open_storage

CHUNK_BYTES: Final = 8 * MIB
THREADS: Final = 4

STRUCTURE: Final = "trainer_io.structure"
CRC32C: Final = "trainer_io.crc32c"
"""Keys in the file's metadata: the skeleton of the state, and the checksum of each tensor."""


def save(
    state: Any,
    path: str | os.PathLike[str],
    *,
    storage: Storage | None = None,
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Saves nested dictionaries and lists of tensors and plain values; the bytes written.

    Any safetensors reader can read the tensors, under the path of their keys (`model/weight`).
    Until the end the file has a temporary name beside `path`; then it is flushed to media and
    renamed, so that a crash leaves the old checkpoint or the new one.

    Args:
        path: a local path or an `fs3://` URL; its directory exists.
        storage: where to write, when it is not to be found by the URL.
        metadata: texts to keep in the file's header.

    Raises:
        TypeError: the state holds something else than tensors and plain values.
        OSError: the file cannot be written.
    """
    storage, target = (storage, os.fspath(path)) if storage else open_storage(path)
    tensors, skeleton = flatten(state)
    contents = {name: bytes_of(t.detach().cpu().contiguous()) for name, t in tensors.items()}
    specs = place({name: (NAMES[t.dtype], t.shape) for name, t in tensors.items()})
    checksums = {name: crc32c(content) for name, content in contents.items()}
    header = encode_header(
        specs,
        dict(metadata or {}) | {STRUCTURE: json.dumps(skeleton), CRC32C: json.dumps(checksums)},
    )
    parts = [(0, memoryview(header))]
    parts += [(len(header) + spec.begin, contents[spec.name]) for spec in specs]
    _write_atomically(storage, target, parts)
    return sum(len(content) for _, content in parts)


def _write_atomically(storage: Storage, path: str, parts: list[tuple[int, memoryview]]) -> None:
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        with closing(storage.create(temporary)) as file:
            _write_parallel(file, parts)
            file.fsync()
        storage.commit(temporary, path)
    except BaseException:
        _remove_if_there(storage, temporary)
        raise


def _write_parallel(file: WritableFile, parts: list[tuple[int, memoryview]]) -> None:
    with ThreadPoolExecutor(THREADS, thread_name_prefix="checkpoint") as pool:
        for written in pool.map(lambda chunk: file.write_at(*chunk), _chunks(parts)):
            assert written > 0, "write_at writes everything or raises"


def _chunks(parts: list[tuple[int, memoryview]]) -> Iterator[tuple[int, memoryview]]:
    for offset, content in parts:
        for begin in range(0, len(content), CHUNK_BYTES):
            yield offset + begin, content[begin : begin + CHUNK_BYTES]


def _remove_if_there(storage: Storage, path: str) -> None:
    """Cleans up after a failure without hiding its cause."""
    try:
        storage.remove(path)
    except OSError:
        return
