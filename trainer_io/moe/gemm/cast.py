"""Casts to e4m3 with one fp32 scale per token's 128 values, per channel, or per 128 x 128 block.

A scale is the largest magnitude of its values / 448, at least 1e-4 / 448; with `use_ue8m0` it is
rounded up to a power of two, as Blackwell's tensor cores take it. value = code * scale.
Extents that do not divide by 128 are padded with zeros for the scales and cut again.
"""

from typing import Final

import torch

from trainer_io.moe.e4m3 import E4M3_MAX, decode, round_up_to_power_of_two

GROUP: Final = 128
AMAX_MIN: Final = 1e-4


def per_token_cast_to_fp8(
    x: torch.Tensor, use_ue8m0: bool, gran_k: int = GROUP
) -> tuple[torch.Tensor, torch.Tensor]:
    """Casts `[m, k]`; scales are `[m, ceil(k / gran_k)]`."""
    return _cast(x, 1, gran_k, use_ue8m0)


def per_channel_cast_to_fp8(
    x: torch.Tensor, use_ue8m0: bool, gran_k: int = GROUP
) -> tuple[torch.Tensor, torch.Tensor]:
    """Casts `[k, n]`, grouping along the first axis; scales are `[ceil(k / gran_k), n]`."""
    return _cast(x, gran_k, 1, use_ue8m0)


def per_block_cast_to_fp8(
    x: torch.Tensor, use_ue8m0: bool, gran_k: int = GROUP
) -> tuple[torch.Tensor, torch.Tensor]:
    """Casts `[n, k]` in blocks `gran_k x gran_k`; scales are one per block."""
    return _cast(x, gran_k, gran_k, use_ue8m0)


def dequantise(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The fp32 values `[..., rows, columns]` of codes with scales of blocks of rows and columns.

    A block's extent is 128, or 1 along an axis that has as many scales as codes.

    Raises:
        ValueError: the scales have neither extent.
    """
    values = decode(codes)
    for axis in (-2, -1):
        extent, count = codes.shape[axis], scales.shape[axis]
        if count == extent:
            continue
        if count != -(-extent // GROUP):
            raise ValueError(
                f"scales are {list(scales.shape)} for {list(codes.shape)}: along each axis there "
                f"must be one per value or one per {GROUP}"
            )
        scales = scales.repeat_interleave(GROUP, axis).narrow(axis, 0, extent)
    return values * scales


def _cast(
    x: torch.Tensor, rows: int, columns: int, use_ue8m0: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.dim() != 2:
        raise ValueError(f"x is {list(x.shape)}: it must be a matrix")
    m, n = x.shape
    down, across = -(-m // rows), -(-n // columns)
    padded = x.new_zeros(down * rows, across * columns, dtype=torch.float32)
    padded[:m, :n] = x
    blocks = padded.view(down, rows, across, columns)
    scale = blocks.abs().amax((1, 3), keepdim=True).clamp_min(AMAX_MIN) / E4M3_MAX
    if use_ue8m0:
        scale = round_up_to_power_of_two(scale)
    codes = (blocks * (1 / scale)).to(torch.float8_e4m3fn).view(padded.shape)
    return codes[:m, :n].contiguous(), scale.view(down, across)
