"""Names of element types in safetensors files and in PyTorch."""

from typing import Final

import torch

TORCH_TYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}

NAMES: Final = {torch_type: name for name, torch_type in TORCH_TYPES.items()}


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The elements of a contiguous CPU tensor as bytes, without a copy."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
