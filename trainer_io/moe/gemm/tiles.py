"""The CPU path of all products: fp32 tiles of whatever is stored, one rounding into the output.

FP8 operands keep the two-level accumulation of the tensor cores: each 128-wide slice of K is
multiplied in codes, and the slice's product, times its scales, is added to the sum.
"""

from typing import Final

import torch

from trainer_io.moe.e4m3 import decode
from trainer_io.moe.gemm.cast import GROUP

ROWS: Final = 256
"""Rows of A in one tile: bounds the memory that a slice's product takes beside the sum."""

HAS_BF16_UNITS: Final = (
    torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.cpu._is_avx512_bf16_supported()
)

Scaled = tuple[torch.Tensor, torch.Tensor]


def multiply_scaled(a: Scaled, b: Scaled) -> torch.Tensor:
    """`a [m, k]` times the transpose of `b [n, k]` in fp32, both e4m3 with scales.

    Scales of A are `[m, ceil(k / 128)]`; those of B `[ceil(n / 128) or n, ceil(k / 128)]`.
    """
    (codes, scale), (weights, weight_scale) = a, b
    m, k = codes.shape
    n = weights.shape[0]
    if weight_scale.shape[0] != n:
        weight_scale = weight_scale.repeat_interleave(GROUP, 0)[:n]
    out = torch.zeros(m, n, dtype=torch.float32, device=codes.device)
    for index, begin in enumerate(range(0, k, GROUP)):
        columns = decode(weights[:, begin : begin + GROUP]).T
        for top in range(0, m, ROWS):
            rows = slice(top, top + ROWS)
            part = decode(codes[rows, begin : begin + GROUP]) @ columns
            part.mul_(weight_scale[:, index])
            out[rows].addcmul_(part, scale[rows, index, None])
    return out


def multiply(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`a [m, k]` times the transpose of `b [n, k]`, both bf16, summed in fp32; result in `dtype`.

    A CPU with bf16 units sums in fp32 and rounds once by itself; any other is several times faster
    in fp32.
    """
    if HAS_BF16_UNITS and dtype == torch.bfloat16:
        return a @ b.mT
    return a.float() @ b.float().mT
