"""The 8-bit float e4m3 and its power-of-two scales, as caches and matrix operands share them."""

from typing import Final

import torch

E4M3_MAX: Final = 448.0

_VALUES: Final = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()


def decode(codes: torch.Tensor) -> torch.Tensor:
    """The fp32 values of e4m3 codes (float8_e4m3fn or uint8), by table: the CPU's fastest way."""
    index = codes.view(torch.uint8).int().flatten()
    return _VALUES.to(codes.device).index_select(0, index).view(codes.shape)


def round_up_to_power_of_two(scale: torch.Tensor) -> torch.Tensor:
    """The smallest power of two that is not below each positive value."""
    mantissa, exponent = torch.frexp(scale)
    return torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())
