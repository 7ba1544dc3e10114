"""Layouts of scales as tensor memory accelerators and Blackwell's tensor cores take them.

MN-major: the axis of rows is the contiguous one, padded to 16 bytes. Packed UE8M0: the exponent
bytes of four power-of-two scales along K in one int32, the first in the lowest byte.
"""

from typing import Final

import torch

ALIGNMENT_BYTES: Final = 16
_MANTISSA_BITS: Final = 23
_PER_WORD: Final = 4


def get_tma_aligned_size(size: int, element_size: int) -> int:
    """`size` elements rounded up to whole 16 bytes."""
    step = ALIGNMENT_BYTES // element_size
    return -(-size // step) * step


def get_mn_major_tma_aligned_tensor(scales: torch.Tensor) -> torch.Tensor:
    """The same scales `[..., mn, k]` with the strides `(1, aligned mn)`."""
    *batch, mn, k = scales.shape
    aligned = get_tma_aligned_size(mn, scales.element_size())
    moved = scales.new_zeros(*batch, k, aligned).mT
    moved[..., :mn, :] = scales
    return moved[..., :mn, :]


def get_mn_major_tma_aligned_packed_ue8m0_tensor(scales: torch.Tensor) -> torch.Tensor:
    """Packs fp32 scales `[..., mn, k]` as int32 `[..., mn, ceil(k / 4)]`, MN-major.

    Raises:
        ValueError: a scale is no power of two: its mantissa would be lost.
    """
    bits = scales.float().contiguous().view(torch.int32)
    if (bits & ((1 << _MANTISSA_BITS) - 1)).any():
        raise ValueError("scales must be powers of two: cast with use_ue8m0=True")
    *batch, mn, k = scales.shape
    exponents = torch.zeros(
        *batch, mn, -(-k // _PER_WORD) * _PER_WORD, dtype=torch.uint8, device=scales.device
    )
    exponents[..., :k] = bits >> _MANTISSA_BITS
    return get_mn_major_tma_aligned_tensor(exponents.view(torch.int32))


def unpack_ue8m0(packed: torch.Tensor, k: int) -> torch.Tensor:
    """The fp32 scales `[..., mn, k]` of packed ones.

    Raises:
        ValueError: there are not `k` of them in a row.
    """
    if packed.shape[-1] != -(-k // _PER_WORD):
        raise ValueError(
            f"packed scales are {list(packed.shape)}: {k} in a row need {-(-k // _PER_WORD)} words"
        )
    exponents = packed.contiguous().view(torch.uint8)[..., :k]
    return (exponents.int() << _MANTISSA_BITS).view(torch.float32)
