"""FP8 and BF16 products against float64, with poison in every row that is padding."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_io.moe import gemm
from trainer_io.moe.e4m3 import decode, round_up_to_power_of_two
from trainer_io.moe.gemm import tiles
from trainer_io.moe.gemm.cast import dequantise

TIGHT = 2e-11
"""Limit of `calc_diff` for fp32 sums against float64 of the same operands."""
BF16 = 1e-5
FP8 = 1e-3


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def cast_blocks(b: torch.Tensor, ue8m0: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [gemm.per_block_cast_to_fp8(group, ue8m0) for group in b]
    return torch.stack([p[0] for p in parts]), torch.stack([p[1] for p in parts])


def exact(
    a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    return dequantise(*a).double() @ dequantise(*b).double().mT


def test_decode_is_the_cast_of_torch() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert torch.equal(decode(codes).nan_to_num(7777), codes.float().nan_to_num(7777))


@pytest.mark.parametrize(
    ("cast", "rows", "columns"),
    [
        (gemm.per_token_cast_to_fp8, 1, 128),
        (gemm.per_channel_cast_to_fp8, 128, 1),
        (gemm.per_block_cast_to_fp8, 128, 128),
    ],
)
@pytest.mark.parametrize("ue8m0", [False, True])
def test_casts(
    cast: Callable[..., tuple[torch.Tensor, torch.Tensor]], rows: int, columns: int, ue8m0: bool
) -> None:
    """Each block by itself, ends that do not divide by 128 included."""
    x = random(130, 200) * torch.exp2(torch.arange(130) % 9 - 4)[:, None]
    x[:, :3] = 0
    codes, scales = cast(x, ue8m0)
    assert tuple(scales.shape) == (-(-130 // rows), -(-200 // columns))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            block = x[part].float()
            scale = block.abs().max().clamp(1e-4) / 448
            scale = round_up_to_power_of_two(scale) if ue8m0 else scale
            assert scales[i, j] == scale
            wanted = (block * (1 / scale)).to(torch.float8_e4m3fn)
            assert torch.equal(codes[part].view(torch.uint8), wanted.view(torch.uint8))


def test_power_of_two_scales() -> None:
    values = torch.tensor([1.0, 1.0000001, 0.75, 3.0, 2.0**-20])
    assert round_up_to_power_of_two(values).tolist() == [1.0, 2.0, 1.0, 4.0, 2.0**-20]


SHAPES = [(1, 1, 1), (3, 130, 200), (64, 96, 256), (130, 257, 129), (300, 40, 384)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("ue8m0", [False, True])
@pytest.mark.parametrize("out", [torch.bfloat16, torch.float32])
def test_fp8_product(m: int, n: int, k: int, ue8m0: bool, out: torch.dtype) -> None:
    x, y = random(m, k), random(n, k, seed=2)
    a, b = gemm.per_token_cast_to_fp8(x, ue8m0), gemm.per_block_cast_to_fp8(y, ue8m0)
    d = torch.full((m, n), float("nan"), dtype=out)
    gemm.fp8_gemm_nt(a, b, d)
    assert gemm.calc_diff(d, exact(a, b)) < (TIGHT if out == torch.float32 else BF16)
    if k > 1:
        assert gemm.calc_diff(d, x.double() @ y.double().T) < FP8


@pytest.mark.parametrize(("m", "n", "k"), [(64, 2112, 7168), (64, 24576, 1536)])
def test_published_shapes(m: int, n: int, k: int) -> None:
    """Two shapes of the published table; a sixteenth of the columns is compared."""
    x, y = random(m, k), random(n, k, seed=2)
    a, b = gemm.per_token_cast_to_fp8(x, False), gemm.per_block_cast_to_fp8(y, False)
    d = torch.empty(m, n)
    gemm.fp8_gemm_nt(a, b, d)
    scales = b[1].repeat_interleave(128, 0)[:n:16]
    assert gemm.calc_diff(d[:, ::16], exact(a, (b[0][::16], scales))) < TIGHT
    assert gemm.calc_diff(d[:, ::16], x.double() @ y[::16].double().T) < FP8


def test_published_limits_see_a_lost_row() -> None:
    x, y = random(128, 256), random(128, 256, seed=2)
    a, b = gemm.per_token_cast_to_fp8(x, False), gemm.per_block_cast_to_fp8(y, False)
    d = torch.empty(128, 128)
    gemm.fp8_gemm_nt(a, b, d)
    d[5] = 0
    assert gemm.calc_diff(d, x.double() @ y.double().T) > FP8


def test_packed_scales() -> None:
    """Bytes of the packed form, its strides, and a product that is the same bit for bit."""
    scales = torch.tensor([[1.0, 2.0, 0.5, 4.0, 8.0], [2.0**-20, 1.0, 1.0, 1.0, 1.0]])
    packed = gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales)
    assert packed.stride() == (1, 4), "two rows, padded to 16 bytes"
    assert packed[0].contiguous().view(torch.uint8).tolist() == [127, 128, 126, 129, 130, 0, 0, 0]
    assert packed[1].contiguous().view(torch.uint8).tolist()[0] == 107
    with pytest.raises(ValueError, match="use_ue8m0=True"):
        gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales * 3)
    plain = gemm.get_mn_major_tma_aligned_tensor(scales)
    assert torch.equal(plain, scales)
    assert plain.stride() == (1, 4)
    a = gemm.per_token_cast_to_fp8(random(7, 700), True)
    b = gemm.per_token_cast_to_fp8(random(9, 700, seed=2), True)
    want, got = torch.empty(7, 9), torch.empty(7, 9)
    gemm.fp8_gemm_nt(a, b, want)
    left, right = ((q, gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(s)) for q, s in (a, b))
    gemm.fp8_gemm_nt(left, right, got)
    assert torch.equal(got, want)


def test_storage_orders() -> None:
    a, b = (
        gemm.per_token_cast_to_fp8(random(70, 200), False),
        gemm.per_block_cast_to_fp8(random(150, 200, seed=2), False),
    )
    a_t, b_t = [t.T.contiguous() for t in a], [t.T.contiguous() for t in b]
    want = torch.empty(70, 150)
    gemm.fp8_gemm_nt(a, b, want)
    for product, left, right in (
        (gemm.fp8_gemm_nn, a, b_t),
        (gemm.fp8_gemm_tn, a_t, b_t),
        (gemm.fp8_gemm_tt, a_t, b),
    ):
        d = torch.empty_like(want)
        product((left[0], left[1]), (right[0], right[1]), d)
        assert gemm.calc_diff(d, want) < TIGHT


def test_bf16_storage_orders() -> None:
    x, y = random(33, 70), random(50, 70, seed=2)
    want = x.double() @ y.double().T
    for product, left, right in (
        (gemm.bf16_gemm_nt, x, y),
        (gemm.bf16_gemm_nn, x, y.T.contiguous()),
        (gemm.bf16_gemm_tn, x.T.contiguous(), y.T.contiguous()),
        (gemm.bf16_gemm_tt, x.T.contiguous(), y),
    ):
        d = torch.empty(33, 50)
        product(left, right, d)
        assert gemm.calc_diff(d, want) < TIGHT


@pytest.mark.parametrize("has_units", [False, True])
def test_bf16_output_is_rounded_once(has_units: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way to multiply is within half a unit in the last place, added `c` included."""
    monkeypatch.setattr(tiles, "HAS_BF16_UNITS", has_units)
    x, y, c = random(33, 700), random(50, 700, seed=2), random(33, 50, seed=3)
    want = x.double() @ y.double().T
    d, summed = (torch.empty(33, 50, dtype=torch.bfloat16) for _ in range(2))
    gemm.bf16_gemm_nt(x, y, d)
    gemm.bf16_gemm_nt(x, y, summed, c)
    for got, exactly in ((d, want), (summed, want + c.double())):
        assert ((got.double() - exactly).abs() <= exactly.abs() * 2**-8 + 1e-4).all()


def test_accumulates_into_c() -> None:
    """A weight gradient: fp32, scales per row of both operands, c and d the same tensor."""
    a, b = (gemm.per_token_cast_to_fp8(random(40, 300, seed=s), False) for s in (1, 2))
    d = random(40, 40, seed=3).float()
    want = d.double() + exact(a, b)
    gemm.fp8_gemm_nt(a, b, d, c=d, recipe=(1, 1, 128))
    assert gemm.calc_diff(d, want) < TIGHT


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.lists(st.integers(0, 9), min_size=5, max_size=5),
    st.booleans(),
)
def test_contiguous_groups(counts: list[int], pads: list[int], fp8: bool) -> None:
    """Groups of any size with any padding; the padding is poison and its output is left alone."""
    n, k = 20, 140
    layout = [g for i, c in enumerate(counts) for g in [i] * c + [-1] * pads[i]]
    grouped = torch.tensor(layout, dtype=torch.int32)
    x, y = random(len(layout), k), random(len(counts), n, k, seed=2)
    x[grouped < 0] = float("nan")
    d = torch.full((len(layout), n), -7.0)
    if fp8:
        a, b = gemm.per_token_cast_to_fp8(x, False), cast_blocks(y)
        gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, grouped)
        x, y = dequantise(*a), dequantise(*b)
        again = torch.full_like(d, -7.0)
        stored = b[0].mT.contiguous(), b[1].mT.contiguous()
        gemm.m_grouped_fp8_gemm_nn_contiguous(a, stored, again, grouped)
    else:
        gemm.m_grouped_bf16_gemm_nt_contiguous(x, y, d, grouped)
        again = torch.full_like(d, -7.0)
        gemm.m_grouped_bf16_gemm_nn_contiguous(x, y.mT.contiguous(), again, grouped)
    assert gemm.calc_diff(again, d) < TIGHT
    used = grouped >= 0
    assert (d[~used] == -7).all()
    want = torch.einsum("mk,mnk->mn", x[used].double(), y[grouped[used].long()].double())
    assert gemm.calc_diff(d[used], want) < TIGHT


def test_groups_by_their_ends() -> None:
    ends = [5, 128 + 70, 256]  # the last one is empty: it begins at 256
    x, y = random(300, 64), random(3, 16, 64, seed=2)
    rows = torch.full((300,), -1, dtype=torch.int32)
    rows[:5], rows[128:198] = 0, 1
    by_row, by_end = torch.full((300, 16), -7.0), torch.full((300, 16), -7.0)
    gemm.m_grouped_bf16_gemm_nt_contiguous(x, y, by_row, rows)
    gemm.m_grouped_bf16_gemm_nt_contiguous(
        x, y, by_end, torch.tensor(ends, dtype=torch.int32), use_psum_layout=True
    )
    assert torch.equal(by_row, by_end)


@pytest.mark.parametrize("fp8", [False, True])
def test_masked_groups(fp8: bool) -> None:
    most, n, k = 24, 30, 200
    used = torch.tensor([24, 0, 7], dtype=torch.int32)
    x, y = random(3, most, k), random(3, n, k, seed=2)
    for group, count in enumerate(used.tolist()):
        x[group, count:] = float("nan")
    d = torch.full((3, most, n), -7.0)
    if fp8:
        flat = gemm.per_token_cast_to_fp8(x.view(-1, k), False)
        a, b = (flat[0].view(3, most, k), flat[1].view(3, most, -1)), cast_blocks(y)
        gemm.m_grouped_fp8_gemm_nt_masked(a, b, d, used, 8)
        x, y = dequantise(*a), dequantise(*b)
    else:
        gemm.m_grouped_bf16_gemm_nt_masked(x, y, d, used, 8)
    want = x.double() @ y.double().mT
    for group, count in enumerate(used.tolist()):
        assert (d[group, count:] == -7).all()
        assert gemm.calc_diff(d[group, :count], want[group, :count]) < TIGHT


def test_refusals() -> None:
    a = gemm.per_token_cast_to_fp8(random(4, 200), False)
    b = gemm.per_block_cast_to_fp8(random(6, 200), False)
    d = torch.zeros(4, 6)
    refused: list[tuple[Callable[[], None], str]] = [
        (lambda: gemm.fp8_gemm_nt(a, b, d, recipe=(1, 64, 64)), "recipe is"),
        (lambda: gemm.fp8_gemm_nt((a[0].float(), a[1]), b, d), "a is torch.float32"),
        (lambda: gemm.fp8_gemm_nt((a[0], a[1].int().repeat(1, 3)), b, d), "need 1 words"),
        (lambda: gemm.fp8_gemm_nt((a[0], a[1][:, :1]), b, d), "per row, and per 128"),
        (lambda: gemm.fp8_gemm_nt(a, (b[0], b[1][:0]), d), "per row or per 128 rows"),
        (lambda: gemm.fp8_gemm_nt(a, b, d.T), r"must end in \[4, 6\]"),
        (lambda: gemm.fp8_gemm_nt(a, b, d.half()), "must be bfloat16 or float32"),
        (lambda: gemm.bf16_gemm_nt(d, d, d), "both must be bfloat16"),
        (lambda: gemm.bf16_gemm_nt(random(2, 3), random(2, 4), d), "k differs"),
    ]
    for call, message in refused:
        with pytest.raises(ValueError, match=message):
            call()
    assert (d == 0).all()


@pytest.mark.parametrize(
    ("layout", "psum", "message"),
    [
        (torch.zeros(4), False, "must be int32"),
        (torch.zeros(3, dtype=torch.int32), False, r"must be \[4\]"),
        (torch.tensor([0, 0, 2, 2], dtype=torch.int32), False, "there are 2 groups"),
        (torch.tensor([5, 5], dtype=torch.int32), True, "4 rows"),
    ],
)
def test_bad_layouts_are_refused(layout: torch.Tensor, psum: bool, message: str) -> None:
    d = torch.zeros(4, 6)
    with pytest.raises(ValueError, match=message):
        gemm.m_grouped_bf16_gemm_nt_contiguous(
            random(4, 8), random(2, 6, 8), d, layout, use_psum_layout=psum
        )
    assert (d == 0).all()


def test_bad_masks_are_refused() -> None:
    for mask in (torch.tensor([3, 5]).int(), torch.tensor([1, 1]), torch.tensor([1]).int()):
        with pytest.raises(ValueError, match="masked_m is"):
            gemm.m_grouped_bf16_gemm_nt_masked(
                random(2, 4, 8), random(2, 6, 8), torch.zeros(2, 4, 6), mask, 1
            )
