"""Both FP8 cache formats byte for byte, sparse decode over them, sparse prefill."""

import math
import struct
from typing import Any

import pytest
import torch

from tests.unit.moe.agreement import assert_close, assert_lse
from trainer_io.moe.attention import (
    MODEL1,
    V32,
    dequantise_cache,
    flash_mla_sparse_fwd,
    flash_mla_with_kvcache,
    get_mla_metadata,
    quantise_cache,
)
from trainer_io.moe.attention.fp8_cache import Format
from trainer_io.moe.attention.reference import attend_reference

FORMATS = (V32, MODEL1)


def cache(target: Format, blocks: int, block_size: int, seed: int = 5) -> torch.Tensor:
    dice = torch.Generator().manual_seed(seed)
    values = torch.randn(blocks, block_size, 1, target.head_dim, generator=dice)
    values *= torch.exp2(torch.randint(-9, 5, (blocks, block_size, 1, 1), generator=dice))
    return values.to(torch.bfloat16)


def packed_block(block: torch.Tensor, target: Format) -> bytes:
    """One block `[block_size, d]` by hand: plain arithmetic and struct, token after token."""
    tokens, scales = b"", b""
    for row in block:
        codes, token_scales = b"", []
        for begin in range(0, target.nope, target.group):
            group = row[begin : begin + target.group].tolist()
            mantissa, exponent = math.frexp(max(max(map(abs, group)) / 448, 1e-4))
            exponent -= mantissa == 0.5
            token_scales.append(exponent)
            scaled = torch.tensor([x / 2.0**exponent for x in group])
            codes += scaled.to(torch.float8_e4m3fn).view(torch.uint8).numpy().tobytes()
        rope = row[target.nope :].contiguous().view(torch.uint8).numpy().tobytes()
        if target is V32:
            tokens += codes + struct.pack("<4f", *(2.0**e for e in token_scales)) + rope
        else:
            tokens += codes + rope
            scales += bytes(e + 127 for e in token_scales) + b"\0"
    return tokens + scales


@pytest.mark.parametrize("target", FORMATS, ids=lambda f: f.name)
def test_bytes_of_a_cache(target: Format) -> None:
    values = cache(target, blocks=2, block_size=3)
    values[0, 0, 0, : target.group] = 0
    values[0, 1, 0, : target.group] = 448
    values[0, 1, 0, 0] = -448.0 * 4
    packed = quantise_cache(values, target)
    assert tuple(packed.shape) == (2, 3, 1, target.token_bytes)
    if target is MODEL1:
        assert packed.stride(0) == 2304, "3 x 584 = 1752, padded to a multiple of 576"
    for block in range(2):
        raw = packed.view(torch.uint8)[block].contiguous().numpy().tobytes()
        assert raw == packed_block(values[block, :, 0], target)


@pytest.mark.parametrize("target", FORMATS, ids=lambda f: f.name)
def test_dequantised_values(target: Format) -> None:
    values = cache(target, blocks=2, block_size=5)
    again = dequantise_cache(quantise_cache(values, target), target)
    assert torch.equal(again[..., target.nope :], values[..., target.nope :]), "RoPE is exact"
    groups = values[..., : target.nope].float().reshape(2, 5, target.groups, target.group)
    error = (again - values)[..., : target.nope].float().reshape(groups.shape).abs()
    step = groups.abs().amax(-1, keepdim=True).clamp_min(448e-4) / 448 * 2
    assert (error <= torch.maximum(groups.abs() / 16, step * 2**-9)).all(), "half a step of e4m3"
    assert torch.equal(dequantise_cache(quantise_cache(again, target), target), again)


def test_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="V32 holds"):
        quantise_cache(torch.zeros(1, 2, 1, 512), V32)
    with pytest.raises(ValueError, match="each block contiguous"):
        dequantise_cache(quantise_cache(cache(V32, 1, 4), V32)[:, ::2], V32)


@pytest.mark.parametrize("target", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("block_size", [61, 2])
@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("sink", [False, True])
def test_sparse_decode(target: Format, block_size: int, extra: bool, sink: bool) -> None:
    dice = torch.Generator().manual_seed(block_size)
    batch, s_q, h_q, topk, blocks = 3, 2, 4, 40, 30
    q = torch.randn(batch, s_q, h_q, target.head_dim, generator=dice).to(torch.bfloat16)
    sinks = torch.tensor([0.5, -torch.inf, torch.inf, 3.0]) if sink else None
    scopes = []
    for scope in range(1 + extra):
        packed = quantise_cache(cache(target, blocks, block_size, seed=scope), target)
        indices = torch.randint(0, blocks * block_size, (batch, s_q, topk), generator=dice).int()
        indices[:, :, ::7] = -1
        indices[2] = -1
        lengths = torch.tensor([topk, 13, topk], dtype=torch.int32)
        indices[1, :, 13:] = 2147480000
        scopes.append((packed, indices, lengths))
    more: dict[str, Any] = (
        {
            "extra_k_cache": scopes[1][0],
            "extra_indices_in_kvcache": scopes[1][1],
            "extra_topk_length": scopes[1][2],
        }
        if extra
        else {}
    )
    out, lse = flash_mla_with_kvcache(
        q,
        scopes[0][0],
        None,
        None,
        512,
        get_mla_metadata()[0],
        is_fp8_kvcache=True,
        indices=scopes[0][1],
        topk_length=scopes[0][2],
        attn_sink=sinks,
        **more,
    )
    for b in range(batch):
        for j in range(s_q):
            keys = []
            for packed, indices, lengths in scopes:
                chosen = indices[b, j, : int(lengths[b])]
                plain = dequantise_cache(packed, target).reshape(-1, target.head_dim)
                keys.append(plain[chosen[chosen >= 0].long()])
            tokens = torch.cat(keys)
            everything = torch.ones(len(tokens), dtype=torch.bool)
            scale = target.head_dim**-0.5
            expected, _, expected_lse = attend_reference(
                q[b, j], tokens, 512, scale, everything, sinks
            )
            assert_close(out[b, j], expected, 1e-3, 2.01 / 128, 5e-6)
            assert_lse(lse[b, :, j], expected_lse)
    assert (out[2] == 0).all()
    assert (lse[2] == torch.inf).all()
    assert not sink or (out[:, :, 2] == 0).all(), "an infinite sink takes everything"


def test_stale_slots_of_a_packed_cache_are_not_read() -> None:
    """Tokens that no index names hold NaN codes and scales; the result is as without them."""
    packed = quantise_cache(cache(V32, 2, 4), V32)
    indices = torch.tensor([[[1, 6, -1]]], dtype=torch.int32)
    q = torch.ones(1, 1, 2, 576, dtype=torch.bfloat16)

    def decode() -> torch.Tensor:
        metadata, _ = get_mla_metadata()
        return flash_mla_with_kvcache(
            q, packed, None, None, 512, metadata, is_fp8_kvcache=True, indices=indices
        )[0]

    clean = decode()
    raw = packed.view(torch.uint8).view(8, 656)
    raw[[0, 2, 3, 4, 5, 7]] = 0xFF
    assert torch.equal(decode(), clean)


def test_extra_cache_needs_its_indices() -> None:
    packed = quantise_cache(cache(V32, 1, 2), V32)
    with pytest.raises(ValueError, match="come together"):
        flash_mla_with_kvcache(
            torch.ones(1, 1, 2, 576, dtype=torch.bfloat16),
            packed,
            None,
            None,
            512,
            get_mla_metadata()[0],
            is_fp8_kvcache=True,
            indices=torch.zeros(1, 1, 1, dtype=torch.int32),
            extra_k_cache=packed,
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": torch.zeros(1, 1, 1)}, "int32"),
        ({"indices": torch.zeros(1, 2, 1, dtype=torch.int32)}, r"\[1, 1, topk\] int32"),
        ({"topk_length": torch.ones(3)}, r"topk_length is \[3\]"),
        ({"attn_sink": torch.ones(1)}, r"attn_sink is \[1\]: it must be \[2\]"),
        ({"causal": True}, "causal=False"),
    ],
)
def test_sparse_refusals(change: dict[str, Any], message: str) -> None:
    packed = quantise_cache(cache(V32, 1, 2), V32)
    q = torch.ones(1, 1, 2, 576, dtype=torch.bfloat16)
    options: dict[str, Any] = {"indices": torch.zeros(1, 1, 1, dtype=torch.int32)} | change
    metadata, _ = get_mla_metadata()
    with pytest.raises(ValueError, match=message):
        flash_mla_with_kvcache(q, packed, None, None, 512, metadata, is_fp8_kvcache=True, **options)


@pytest.mark.parametrize("head_dim", [576, 512])
def test_sparse_prefill(head_dim: int) -> None:
    dice = torch.Generator().manual_seed(head_dim)
    s_q, s_kv, h_q, topk = 5, 700, 4, 600
    q = torch.randn(s_q, h_q, head_dim, generator=dice).to(torch.bfloat16)
    kv = torch.randn(s_kv, 1, head_dim, generator=dice).to(torch.bfloat16)
    kv[123] = float("nan")
    indices = torch.randint(0, s_kv, (s_q, 1, topk), generator=dice).int()
    indices[indices == 123] = 124
    indices[:, :, ::5] = -1
    indices[:, :, ::11] = s_kv
    indices[3] = s_kv + 5
    lengths = torch.tensor([topk, 100, 0, topk, 1], dtype=torch.int32)
    indices[1, :, 100:] = 123
    sinks = torch.tensor([0.0, 2.0, -torch.inf, 5.0])
    scale = head_dim**-0.5
    out, max_logits, lse = flash_mla_sparse_fwd(
        q, kv, indices, scale, attn_sink=sinks, topk_length=lengths
    )
    for j in range(s_q):
        chosen = indices[j, 0, : int(lengths[j])]
        tokens = kv[chosen[(chosen >= 0) & (chosen < s_kv)].long(), 0]
        everything = torch.ones(len(tokens), dtype=torch.bool)
        expected, largest, expected_lse = attend_reference(
            q[j], tokens, 512, scale, everything, sinks
        )
        assert_close(out[j], expected, 8e-4, 3.01 / 128, 7e-6)
        assert_close(max_logits[j], largest, 1e-6, 2.01 / 65536, 1e-10)
        assert_close(lse[j], expected_lse, 1e-6, 2.01 / 65536, 1e-10)


def test_sparse_prefill_refusals() -> None:
    q, kv = torch.zeros(2, 3, 64), torch.zeros(5, 1, 64)
    indices = torch.zeros(2, 1, 4, dtype=torch.int32)
    for arguments, message in (
        ((q, kv.half(), indices), "must be the same"),
        ((q, kv, indices.long()), "must be int32"),
        ((q, kv[..., :32], indices), r"must be \[s_kv, 1, 64\]"),
        ((q, kv, indices[:1]), r"must be \[2, 1, topk\]"),
        ((q, kv, indices), "d_v is 512"),
    ):
        with pytest.raises(ValueError, match=message):
            flash_mla_sparse_fwd(*arguments, 0.1)
    with pytest.raises(ValueError, match=r"attn_sink is \[1\]: it must be \[3\]"):
        flash_mla_sparse_fwd(q, kv, indices, 0.1, 64, attn_sink=torch.ones(1))
    with pytest.raises(ValueError, match=r"topk_length is \[1\]: it must be \[2\]"):
        flash_mla_sparse_fwd(q, kv, indices, 0.1, 64, topk_length=torch.ones(1))
