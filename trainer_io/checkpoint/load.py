"""Reads a checkpoint: header, then all tensors in one batch straight into their memory."""

import json
import os
from typing import Any, Final

import numpy as np
import torch

from fs3._native import crc32c
from fs3.errors import Corrupt
from fs3.units import KIB
from trainer_io.checkpoint.dtypes import TORCH_TYPES, bytes_of
from trainer_io.checkpoint.layout import ELEMENT_BYTES, TensorSpec, decode_header, header_length
from trainer_io.checkpoint.save import CHUNK_BYTES, CRC32C, STRUCTURE
from trainer_io.checkpoint.state import unflatten
from trainer_io.checkpoint.storage import Storage, open_storage
from trainer_io.dataset.source import FileEntry, FileSource, read_exactly, read_ranges

_FIRST_READ_BYTES: Final = 256 * KIB
"""The header of all but the largest models."""


def load(path: str | os.PathLike[str], *, storage: Storage | None = None) -> Any:
    """The state that was saved, its tensors on the CPU; all share one buffer.

    A safetensors file of another program gives a dictionary of its tensors.

    Args:
        path: a local path or an `fs3://` URL.
        storage: where to read from, when it is not to be found by the URL.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a safetensors file.
        Corrupt: a tensor does not have the checksum it was saved with.
    """
    storage, inside = (storage, os.fspath(path)) if storage else open_storage(path)
    (entry,) = storage.source.list_files(inside)
    try:
        specs, metadata, header_bytes = _read_header(storage.source, entry)
    except ValueError as error:
        raise ValueError(f"{inside}: {error}") from error
    buffer = torch.empty(entry.size_bytes - header_bytes, dtype=torch.uint8)
    _read_data(storage.source, entry, header_bytes, buffer.numpy())
    tensors = {spec.name: _view(buffer, spec) for spec in specs}
    _verify(inside, tensors, json.loads(metadata.get(CRC32C, "{}")))
    if STRUCTURE not in metadata:
        return tensors
    return unflatten(json.loads(metadata[STRUCTURE]), tensors)


def _read_header(
    source: FileSource, entry: FileEntry
) -> tuple[list[TensorSpec], dict[str, str], int]:
    first = min(_FIRST_READ_BYTES, entry.size_bytes)
    head = read_ranges(source, [(entry.path, 0, first)])[0].tobytes()
    length = header_length(head, entry.size_bytes)
    if length > len(head):
        rest = read_ranges(source, [(entry.path, len(head), length - len(head))])[0]
        head += rest.tobytes()
    specs, metadata = decode_header(head[:length], entry.size_bytes - length)
    return specs, metadata, length


def _read_data(
    source: FileSource, entry: FileEntry, start: int, memory: np.ndarray[Any, np.dtype[np.uint8]]
) -> None:
    chunks = [
        (entry.path, offset, min(CHUNK_BYTES, entry.size_bytes - offset))
        for offset in range(start, entry.size_bytes, CHUNK_BYTES)
    ]
    read_exactly(source, chunks, memory)


def _view(buffer: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    part = buffer[spec.begin : spec.end]
    if spec.begin % ELEMENT_BYTES[spec.dtype]:
        part = part.clone()  # of another program that does not align
    return part.view(TORCH_TYPES[spec.dtype]).view(spec.shape)


def _verify(path: str, tensors: dict[str, torch.Tensor], checksums: dict[str, int]) -> None:
    for name, expected in checksums.items():
        if crc32c(bytes_of(tensors[name])) != expected:
            raise Corrupt(f"{path}: tensor {name!r} is damaged; load an older checkpoint")
