"""What operands must look like; every product checks before it writes."""

import torch

from trainer_io.moe.gemm.cast import GROUP
from trainer_io.moe.gemm.layout import unpack_ue8m0
from trainer_io.moe.gemm.tiles import Scaled

Recipe = tuple[int, int, int]

RECIPES = ((1, GROUP, GROUP), (1, 1, GROUP))
"""Extents that share one scale: rows of A, rows of B, and columns of both."""


def check_recipe(recipe: Recipe | None) -> None:
    if recipe is not None and tuple(recipe) not in RECIPES:
        raise ValueError(f"recipe is {recipe}: scales are known for {RECIPES}")


def scaled(name: str, operand: Scaled, per_row_only: bool) -> Scaled:
    """Codes `[..., rows, k]` with fp32 scales per row or per 128 rows, and per 128 of k.

    Scales in int32 are packed UE8M0 and get unpacked.

    Raises:
        ValueError: codes or scales of another type or extent.
    """
    codes, scales = operand
    if codes.dtype != torch.float8_e4m3fn:
        raise ValueError(f"{name} is {codes.dtype}: it must be float8_e4m3fn")
    rows, k = codes.shape[-2:]
    across = -(-k // GROUP)
    if scales.dtype == torch.int32:
        scales = unpack_ue8m0(scales, across)
    if scales.dtype != torch.float32:
        raise ValueError(f"scales of {name} are {scales.dtype}: they must be float32 or int32")
    down = {rows} if per_row_only else {rows, -(-rows // GROUP)}
    if scales.shape[:-2] != codes.shape[:-2] or scales.shape[-1] != across:
        down = set()
    if scales.shape[-2] not in down:
        per = "per row" if per_row_only else f"per row or per {GROUP} rows"
        raise ValueError(
            f"scales of {name} are {list(scales.shape)} for {list(codes.shape)}: they must be "
            f"{per}, and per {GROUP} of k"
        )
    return codes, scales


def check_product(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> None:
    """`a [..., m, k]`, `b [..., n, k]`, `d [..., m, n]` in bf16 or fp32.

    Raises:
        ValueError: the extents do not go together, or the output is of another type.
    """
    (m, k), (n, k_of_b) = a.shape[-2:], b.shape[-2:]
    if k != k_of_b:
        raise ValueError(f"a is {list(a.shape)} and b {list(b.shape)}: k differs")
    if tuple(d.shape[-2:]) != (m, n):
        raise ValueError(f"d is {list(d.shape)}: it must end in [{m}, {n}]")
    if d.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"d is {d.dtype}: it must be bfloat16 or float32")
