"""The safetensors file: 8 bytes little-endian header length, JSON header, tensors without gaps.

The header is padded with spaces to a multiple of 8, and tensors are sorted by falling element size,
so that each is aligned in the file and in a buffer that holds the data section.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

ALIGNMENT: Final = 8
LENGTH_BYTES: Final = 8
HEADER_BYTES_MAX: Final = 100_000_000
"""The limit of the reference implementation."""

ELEMENT_BYTES: Final = {
    "F64": 8, "I64": 8, "U64": 8,
    "F32": 4, "I32": 4, "U32": 4,
    "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's place in the data section: bytes [begin, end)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def place(tensors: Mapping[str, tuple[str, Sequence[int]]]) -> list[TensorSpec]:
    """Lays out tensors given as name -> (dtype, shape)."""
    order = sorted(tensors, key=lambda name: (-ELEMENT_BYTES[tensors[name][0]], name))
    specs, begin = [], 0
    for name in order:
        dtype, shape = tensors[name]
        size = ELEMENT_BYTES[dtype]
        for extent in shape:
            size *= extent
        specs.append(TensorSpec(name, dtype, tuple(shape), begin, begin + size))
        begin += size
    return specs


def encode_header(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """Length, JSON and padding: all that stands before the data section.

    Raises:
        ValueError: the header is larger than readers accept.
    """
    fields: dict[str, Any] = {"__metadata__": dict(metadata)}
    for spec in specs:
        fields[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [spec.begin, spec.end],
        }
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > HEADER_BYTES_MAX:
        raise ValueError(f"{len(specs)} tensors need a header of {len(text)} bytes: save in parts")
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def header_length(prefix: bytes, file_bytes: int) -> int:
    """Bytes before the data section, from the first 8 bytes of the file.

    Raises:
        ValueError: this is no safetensors file.
    """
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if len(prefix) < LENGTH_BYTES or not 2 <= length <= min(HEADER_BYTES_MAX, file_bytes):
        raise ValueError("not a safetensors file, or one whose writing was cut short")
    return LENGTH_BYTES + length


def decode_header(header: bytes, data_bytes: int) -> tuple[list[TensorSpec], dict[str, str]]:
    """Tensors in file order, and the free-form metadata.

    Raises:
        ValueError: the header is malformed or does not describe `data_bytes` without gaps.
    """
    try:
        fields = json.loads(header[LENGTH_BYTES:])
        metadata = dict(fields.pop("__metadata__", {}))
        specs = [
            TensorSpec(name, f["dtype"], tuple(f["shape"]), *f["data_offsets"])
            for name, f in fields.items()
        ]
        specs.sort(key=lambda spec: (spec.begin, spec.end))
        expected = 0
        for spec in specs:
            sized = place({spec.name: (spec.dtype, spec.shape)})[0].end
            if spec.begin != expected or spec.end - spec.begin != sized:
                raise ValueError(f"tensor {spec.name!r} is not where it should be")
            expected = spec.end
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"malformed safetensors header: {error}") from error
    if expected != data_bytes:
        raise ValueError(f"tensors of {expected} bytes, but {data_bytes} bytes of data")
    return specs, metadata
