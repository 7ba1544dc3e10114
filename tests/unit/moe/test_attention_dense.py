"""Dense paged decode against float64, with poison in everything that must not be read."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from tests.unit.moe.agreement import assert_lse, assert_output
from trainer_io.moe.attention import flash_mla_with_kvcache, get_mla_metadata, quantise_cache
from trainer_io.moe.attention.fp8_cache import V32, dequantise_cache
from trainer_io.moe.attention.reference import dense_decode_reference

UNUSED_PAGE = 2147480000


@dataclass
class Case:
    """Request lengths and shapes; `gap` makes every tensor non-contiguous except its last axis."""

    lengths: tuple[int, ...] = (70, 0, 130, 64)
    s_q: int = 1
    h_q: int = 4
    h_k: int = 1
    d: int = 576
    d_v: int = 512
    causal: bool = True
    page: int = 64
    gap: bool = False
    dtype: torch.dtype = torch.bfloat16


@dataclass
class Inputs:
    q: torch.Tensor
    k_cache: torch.Tensor
    block_table: torch.Tensor
    cache_seqlens: torch.Tensor


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with strides that skip memory, all but the last."""
    wide = torch.full((*(2 * n for n in tensor.shape[:-1]), tensor.shape[-1]), 77)
    view = wide.to(tensor.dtype)[tuple(slice(None, None, 2) for _ in tensor.shape[:-1])]
    view.copy_(tensor)
    assert not view.is_contiguous()
    return view


def make(case: Case, seed: int = 1) -> Inputs:
    """Pages in random order; NaN in every slot that no request uses."""
    dice = torch.Generator().manual_seed(seed)
    needed = [-(-n // case.page) for n in case.lengths]
    pages = torch.randperm(sum(needed) + 2, generator=dice).int()
    k_cache = torch.full((len(pages), case.page, case.h_k, case.d), float("nan"))
    table = torch.full((len(case.lengths), max(needed) + 1), UNUSED_PAGE, dtype=torch.int32)
    taken = 0
    for b, (length, count) in enumerate(zip(case.lengths, needed, strict=True)):
        table[b, :count] = pages[taken : taken + count]
        taken += count
        for position in range(length):
            page = int(table[b, position // case.page])
            k_cache[page, position % case.page] = torch.randn(case.h_k, case.d, generator=dice) / 2
    q = torch.randn(len(case.lengths), case.s_q, case.h_q, case.d, generator=dice)
    inputs = Inputs(
        q.to(case.dtype), k_cache.to(case.dtype), table, torch.tensor(case.lengths).int()
    )
    if case.gap:
        return Inputs(
            spread(inputs.q),
            spread(inputs.k_cache),
            spread(inputs.block_table),
            inputs.cache_seqlens,
        )
    return inputs


def decode(case: Case, inputs: Inputs, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return flash_mla_with_kvcache(
        inputs.q,
        inputs.k_cache,
        inputs.block_table,
        inputs.cache_seqlens,
        case.d_v,
        options.pop("metadata", None) or get_mla_metadata()[0],
        causal=case.causal,
        **options,
    )


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(s_q=2),
        Case(s_q=3, lengths=(2, 65, 1), causal=True),
        Case(s_q=2, causal=False),
        Case(h_q=4, h_k=2, s_q=2),
        Case(d=512),
        Case(d=288, d_v=256),
        Case(d=80, d_v=64, lengths=(600, 1100), h_q=2, s_q=2),
        Case(d=80, d_v=80, page=16),
        Case(s_q=2, gap=True),
        Case(dtype=torch.float16),
        Case(d=80, d_v=64, lengths=(0, 0), h_q=2),
    ],
    ids=str,
)
def test_matches_float64(case: Case) -> None:
    inputs = make(case)
    out, lse = decode(case, inputs)
    assert out.dtype == case.dtype
    assert lse.dtype == torch.float32
    expected, expected_lse = dense_decode_reference(
        inputs.q,
        inputs.k_cache,
        inputs.block_table,
        inputs.cache_seqlens,
        case.d_v,
        case.d**-0.5,
        case.causal,
    )
    assert_output(out, expected)
    assert_lse(lse, expected_lse)


def test_lonely_queries() -> None:
    """With three queries on one key, the mask aligned to the end leaves two without any."""
    case = Case(lengths=(1, 0), s_q=3, d=80, d_v=64, h_q=2)
    inputs = make(case)
    out, lse = decode(case, inputs)
    assert lse.isinf().tolist() == [[[True, True, False]] * 2, [[True] * 3] * 2]
    assert (lse[lse.isinf()] > 0).all()
    assert (out[0, :2] == 0).all()
    assert (out[1] == 0).all()
    seen = inputs.k_cache[int(inputs.block_table[0, 0]), 0, 0, :64]
    assert torch.equal(out[0, 2], seen.expand(2, 64)), "one key: its value exactly"


def test_packed_cache() -> None:
    """Dense decode of an FP8 cache equals that of the dequantised one, poison included."""
    case = Case(lengths=(70, 3), s_q=2)
    inputs = make(case)
    packed = quantise_cache(inputs.k_cache, V32)
    plain = replace(inputs, k_cache=dequantise_cache(packed, V32))
    got = decode(case, replace(inputs, k_cache=packed), is_fp8_kvcache=True)
    expected = decode(case, plain)
    assert all(torch.equal(x, y) for x, y in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_splits": 4}, "num_splits must be None"),
        ({"attn_sink": torch.zeros(4)}, "attn_sink need indices"),
        ({"topk_length": torch.ones(4)}, "topk_length need indices"),
        ({"is_fp8_kvcache": True}, "rows of 576: 656"),
        ({"indices": torch.zeros(4, 1, 2, dtype=torch.int32)}, "causal=False and is_fp8"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(Case(), make(Case()), **change)


def test_refuses_what_does_not_fit() -> None:
    case = Case()
    inputs = make(case)
    for changed, message in (
        (replace(inputs, k_cache=inputs.k_cache.half()), "must be the same"),
        (replace(inputs, cache_seqlens=inputs.cache_seqlens.long()), "must be int32"),
        (replace(inputs, cache_seqlens=inputs.cache_seqlens[:2]), "one row for each of 4"),
        (replace(inputs, cache_seqlens=inputs.cache_seqlens + 999), "needs 18 pages"),
        (replace(inputs, q=inputs.q[..., :512]), "rows of 576: 512"),
        (replace(inputs, q=inputs.q.double()), "q is torch.float64"),
    ):
        with pytest.raises(ValueError, match=message):
            decode(case, changed)


def test_metadata_belongs_to_one_shape() -> None:
    case = Case(d=80, d_v=64)
    inputs = make(case)
    metadata, splits = get_mla_metadata(inputs.cache_seqlens, 4, 1)
    assert splits is None
    first = decode(case, inputs, metadata=metadata)
    assert torch.equal(decode(case, inputs, metadata=metadata)[0], first[0])
    other = Case(d=80, d_v=64, h_q=8)
    with pytest.raises(ValueError, match="get_mla_metadata"):
        decode(other, make(other), metadata=metadata)
