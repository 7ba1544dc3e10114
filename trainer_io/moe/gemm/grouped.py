"""Grouped products: every expert multiplies its own rows with its own weights.

Contiguous: the rows of all groups follow each other, and `grouped_layout` names each row's group,
-1 for padding; or, with `use_psum_layout`, it holds where each group ends, and the next begins at
the following multiple of the alignment. Masked: each group has the same room, `masked_m` says how
much of it is used. Rows that belong to no group are neither read nor written, and groups need not
be aligned to give the right result.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import torch

from trainer_io.moe.gemm.dense import check_bf16, transposed
from trainer_io.moe.gemm.operands import Recipe, check_product, check_recipe, scaled
from trainer_io.moe.gemm.tiles import Scaled, multiply, multiply_scaled

ALIGNMENT: Final = 128


class Run(NamedTuple):
    """Rows `begin` to `end` belong to `group`."""

    group: int
    begin: int
    end: int


def get_mk_alignment_for_contiguous_layout() -> int:
    """Rows to which callers pad each group of a contiguous layout."""
    return ALIGNMENT


def m_grouped_fp8_gemm_nt_contiguous(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    recipe: Recipe | None = None,
    compiled_dims: str = "nk",  # noqa: ARG001
    disable_ue8m0_cast: bool = False,  # noqa: ARG001
    use_psum_layout: bool = False,
) -> None:
    """Multiplies `a [m, k]` with `b [groups, n, k]` into `d [m, n]`, both operands with scales.

    Raises:
        ValueError: extents, types, layout or recipe that do not go together.
    """
    check_recipe(recipe)
    a, b = scaled("a", a, per_row_only=True), scaled("b", b, per_row_only=False)
    check_product(a[0], b[0], d)
    for group, begin, end in _runs(grouped_layout, a[0].shape[0], b[0].shape[0], use_psum_layout):
        rows = (a[0][begin:end], a[1][begin:end])
        d[begin:end] = multiply_scaled(rows, (b[0][group], b[1][group]))


def m_grouped_fp8_gemm_nn_contiguous(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    recipe: Recipe | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
) -> None:
    """As `m_grouped_fp8_gemm_nt_contiguous` with `b [groups, k, n]`."""
    m_grouped_fp8_gemm_nt_contiguous(
        a,
        transposed(b),
        d,
        grouped_layout,
        recipe,
        compiled_dims,
        disable_ue8m0_cast,
        use_psum_layout,
    )


def m_grouped_fp8_gemm_nt_masked(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,  # noqa: ARG001
    recipe: Recipe | None = None,
    compiled_dims: str = "nk",  # noqa: ARG001
    disable_ue8m0_cast: bool = False,  # noqa: ARG001
) -> None:
    """Multiplies the first `masked_m[g]` rows of each `a [groups, most, k]`.

    `b` is `[groups, n, k]`, and `d [groups, most, n]` keeps its other rows. `expected_m` tunes
    the tiles of a GPU and changes no result.
    """
    check_recipe(recipe)
    a, b = scaled("a", a, per_row_only=True), scaled("b", b, per_row_only=False)
    check_product(a[0], b[0], d)
    for group, count in _counts(masked_m, a[0]):
        rows = (a[0][group, :count], a[1][group, :count])
        d[group, :count] = multiply_scaled(rows, (b[0][group], b[1][group]))


def m_grouped_bf16_gemm_nt_contiguous(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",  # noqa: ARG001
    use_psum_layout: bool = False,
) -> None:
    """Multiplies bf16 `a [m, k]` with `b [groups, n, k]` into `d [m, n]`, summed in fp32."""
    check_bf16(a, b)
    check_product(a, b, d)
    for group, begin, end in _runs(grouped_layout, a.shape[0], b.shape[0], use_psum_layout):
        d[begin:end] = multiply(a[begin:end], b[group], d.dtype)


def m_grouped_bf16_gemm_nn_contiguous(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
) -> None:
    """As `m_grouped_bf16_gemm_nt_contiguous` with `b [groups, k, n]`."""
    m_grouped_bf16_gemm_nt_contiguous(a, b.mT, d, grouped_layout, compiled_dims, use_psum_layout)


def m_grouped_bf16_gemm_nt_masked(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,  # noqa: ARG001
    compiled_dims: str = "nk",  # noqa: ARG001
) -> None:
    """The bf16 twin of `m_grouped_fp8_gemm_nt_masked`."""
    check_bf16(a, b)
    check_product(a, b, d)
    for group, count in _counts(masked_m, a):
        d[group, :count] = multiply(a[group, :count], b[group], d.dtype)


def _runs(layout: torch.Tensor, m: int, groups: int, is_psum: bool) -> Iterator[Run]:
    if layout.dtype != torch.int32:
        raise ValueError(f"grouped_layout is {layout.dtype}: it must be int32")
    expected = groups if is_psum else m
    if tuple(layout.shape) != (expected,):
        raise ValueError(f"grouped_layout is {list(layout.shape)}: it must be [{expected}]")
    runs = list(_runs_by_end(layout) if is_psum else _runs_by_row(layout))
    for run in runs:
        if run.group >= groups or run.end > m or run.begin > run.end:
            raise ValueError(f"grouped_layout has {run}: there are {groups} groups and {m} rows")
    return iter(runs)


def _runs_by_end(ends: torch.Tensor) -> Iterator[Run]:
    begin = 0
    for group, end in enumerate(ends.tolist()):
        yield Run(group, begin, end)
        begin = -(-end // ALIGNMENT) * ALIGNMENT


def _runs_by_row(groups: torch.Tensor) -> Iterator[Run]:
    values, counts = torch.unique_consecutive(groups, return_counts=True)
    begin = 0
    for group, count in zip(values.tolist(), counts.tolist(), strict=True):
        if group >= 0:
            yield Run(group, begin, begin + count)
        begin += count


def _counts(masked_m: torch.Tensor, a: torch.Tensor) -> Iterator[tuple[int, int]]:
    groups, most = a.shape[:2]
    if masked_m.dtype != torch.int32 or tuple(masked_m.shape) != (groups,):
        raise ValueError(f"masked_m is {list(masked_m.shape)}: it must be [{groups}] int32")
    counts = masked_m.tolist()
    if not all(0 <= count <= most for count in counts):
        raise ValueError(f"masked_m is {counts}: each group has room for {most} rows")
    return enumerate(counts)
