"""Dense products `d = c + a @ b` into a given output, in the four storage orders.

The letters say how A and B are stored: `n` as `[m, k]` and `[k, n]`, `t` transposed. The form `nt`
does the work, and the others are views of it. `compiled_dims` and `disable_ue8m0_cast` steer code
generation on a GPU and change no result; they are accepted so that code written for it runs.
"""

import torch

from trainer_io.moe.gemm.operands import Recipe, check_product, check_recipe, scaled
from trainer_io.moe.gemm.tiles import Scaled, multiply, multiply_scaled


def fp8_gemm_nt(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    compiled_dims: str = "nk",  # noqa: ARG001
    disable_ue8m0_cast: bool = False,  # noqa: ARG001
) -> None:
    """Multiplies e4m3 operands with their scales.

    Args:
        a: codes `[m, k]` and fp32 scales `[m, ceil(k / 128)]`, see `per_token_cast_to_fp8`.
        b: codes `[n, k]` and scales `[ceil(n / 128), ceil(k / 128)]` (`per_block_cast_to_fp8`) or
            `[n, ceil(k / 128)]`. Scales of both may be packed UE8M0, see `layout`.
        d: `[m, n]` bf16 or fp32, written.
        c: `[m, n]`, added before the one rounding; may be `d`.

    Raises:
        ValueError: extents, types or recipe that do not go together; nothing is written.
    """
    check_recipe(recipe)
    a, b = scaled("a", a, per_row_only=True), scaled("b", b, per_row_only=False)
    check_product(a[0], b[0], d)
    _write(multiply_scaled(a, b), c, d)


def fp8_gemm_nn(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
) -> None:
    """As `fp8_gemm_nt` with B and its scales stored `[k, n]`."""
    fp8_gemm_nt(a, transposed(b), d, c, recipe, compiled_dims, disable_ue8m0_cast)


def fp8_gemm_tn(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
) -> None:
    """As `fp8_gemm_nt` with A stored `[k, m]` and B `[k, n]`, and so their scales."""
    fp8_gemm_nt(transposed(a), transposed(b), d, c, recipe, compiled_dims, disable_ue8m0_cast)


def fp8_gemm_tt(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
) -> None:
    """As `fp8_gemm_nt` with A and its scales stored `[k, m]`."""
    fp8_gemm_nt(transposed(a), b, d, c, recipe, compiled_dims, disable_ue8m0_cast)


def bf16_gemm_nt(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",  # noqa: ARG001
) -> None:
    """Multiplies bf16 `a [m, k]` and `b [n, k]` into `d [m, n]`, summed in fp32."""
    check_bf16(a, b)
    check_product(a, b, d)
    _write(multiply(a, b, torch.float32 if c is not None else d.dtype), c, d)


def bf16_gemm_nn(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
) -> None:
    """As `bf16_gemm_nt` with B stored `[k, n]`."""
    bf16_gemm_nt(a, b.mT, d, c, compiled_dims)


def bf16_gemm_tn(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
) -> None:
    """As `bf16_gemm_nt` with A stored `[k, m]` and B `[k, n]`."""
    bf16_gemm_nt(a.mT, b.mT, d, c, compiled_dims)


def bf16_gemm_tt(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
) -> None:
    """As `bf16_gemm_nt` with A stored `[k, m]`."""
    bf16_gemm_nt(a.mT, b, d, c, compiled_dims)


def check_bf16(a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dtype != torch.bfloat16 or b.dtype != torch.bfloat16:
        raise ValueError(f"a is {a.dtype} and b {b.dtype}: both must be bfloat16")


def transposed(operand: Scaled) -> Scaled:
    codes, scales = operand
    return codes.mT, scales.mT


def _write(product: torch.Tensor, c: torch.Tensor | None, d: torch.Tensor) -> None:
    d.copy_(product if c is None else product.add_(c))
