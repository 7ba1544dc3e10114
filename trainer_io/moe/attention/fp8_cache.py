"""The two published FP8 formats of a paged latent KV cache, byte for byte.

`V32` (576 values a token, 656 bytes): 512 e4m3 | 4 fp32 scales, one per 128 | 64 bf16 of RoPE.

`MODEL1` (512 values, 584 bytes) keeps a block's scales behind its tokens: first, per token, 448
e4m3 | 64 bf16 of RoPE; then, per token, 7 scale bytes (UE8M0, one per 64) | one zero byte. Blocks
begin at multiples of 576 bytes. The tensor is still seen as `[blocks, block_size, 1, 584]`, so its
third-last index is no token.

Scales are powers of two, largest magnitude / 448 rounded up, so dequantising to bf16 is exact.
"""

from dataclasses import dataclass
from typing import Final

import torch

from trainer_io.moe.e4m3 import E4M3_MAX, decode, round_up_to_power_of_two

SCALE_MIN: Final = 1e-4
ROPE: Final = 64
_MODEL1_BLOCK_ALIGNMENT: Final = 576
_UE8M0_BIAS: Final = 127


@dataclass(frozen=True, slots=True)
class Format:
    """Sizes of one format: `nope` quantised values in groups of `group`, then RoPE in bf16."""

    name: str
    nope: int
    group: int
    token_bytes: int

    @property
    def head_dim(self) -> int:
        return self.nope + ROPE

    @property
    def groups(self) -> int:
        return self.nope // self.group


V32: Final = Format("V32", nope=512, group=128, token_bytes=656)
MODEL1: Final = Format("MODEL1", nope=448, group=64, token_bytes=584)


def format_of(head_dim: int) -> Format:
    """The format that holds tokens of `head_dim` values.

    Raises:
        ValueError: there is none.
    """
    for known in (V32, MODEL1):
        if known.head_dim == head_dim:
            return known
    raise ValueError(f"head_dim is {head_dim}: the FP8 caches hold 576 (V32) or 512 (MODEL1)")


def quantise_cache(cache: torch.Tensor, target: Format) -> torch.Tensor:
    """Packs a bf16 cache `[blocks, block_size, 1, d]` as e4m3 `[blocks, block_size, 1, bytes]`."""
    blocks, block_size, heads, head_dim = cache.shape
    if heads != 1 or head_dim != target.head_dim:
        raise ValueError(
            f"cache is {list(cache.shape)}: {target.name} holds [blocks, block_size, 1, "
            f"{target.head_dim}]"
        )
    packed = _empty(blocks, block_size, target, cache.device)
    codes, scales, rope = _parts(packed, target)
    values = _grouped(cache[:, :, 0, : target.nope].float(), target)
    scale = round_up_to_power_of_two((values.abs().amax(-1) / E4M3_MAX).clamp_min(SCALE_MIN))
    quantised = (values / scale[..., None]).to(torch.float8_e4m3fn).flatten(-2)
    codes.copy_(quantised.view(torch.uint8))
    scales.copy_(_encode_scale(scale, target))
    rope.copy_(cache[:, :, 0, target.nope :].to(torch.bfloat16).contiguous().view(torch.uint8))
    return packed


def dequantise_cache(packed: torch.Tensor, target: Format) -> torch.Tensor:
    """The bf16 cache `[blocks, block_size, 1, d]` of a packed one."""
    blocks, block_size = packed.shape[:2]
    slots = torch.arange(blocks * block_size, device=packed.device)
    tokens = read_tokens(packed, slots, target)
    return tokens.to(torch.bfloat16).view(blocks, block_size, 1, target.head_dim)


def read_tokens(packed: torch.Tensor, slots: torch.Tensor, target: Format) -> torch.Tensor:
    """Dequantises the tokens at `slots` (block * block_size + offset) to fp32 `[n, d]`.

    Only these tokens' bytes are read: unused ones may hold anything.
    """
    block, offset = slots // packed.shape[1], slots % packed.shape[1]
    codes, scales, rope = (part[block, offset] for part in _parts(packed, target))
    values = _grouped(decode(codes), target)
    nope = values * _decode_scale(scales, target)[..., None]
    return torch.cat((nope.flatten(-2), rope.view(torch.bfloat16).float()), -1)


def _empty(blocks: int, block_size: int, target: Format, device: torch.device) -> torch.Tensor:
    used = block_size * target.token_bytes
    alignment = _MODEL1_BLOCK_ALIGNMENT if target is MODEL1 else 1
    padded = -(-used // alignment) * alignment
    raw = torch.zeros(blocks, padded, dtype=torch.uint8, device=device)
    view = raw[:, :used].view(blocks, block_size, 1, target.token_bytes)
    return view.view(torch.float8_e4m3fn)


def _parts(packed: torch.Tensor, target: Format) -> tuple[torch.Tensor, ...]:
    """Byte views of a packed cache by `[block, token]`: codes, scales and RoPE."""
    blocks, block_size, _, width = packed.shape
    raw = packed.view(torch.uint8)
    if width != target.token_bytes or raw.stride()[1::2] != (width, 1):
        raise ValueError(
            f"packed cache is {list(packed.shape)} with strides {packed.stride()}: {target.name} "
            f"needs [blocks, block_size, 1, {target.token_bytes}] with each block contiguous"
        )
    start, stride = raw.storage_offset(), raw.stride(0)
    token = target.token_bytes if target is V32 else target.nope + 2 * ROPE

    def view(size: int, pitch: int, begin: int) -> torch.Tensor:
        return raw.as_strided((blocks, block_size, size), (stride, pitch, 1), start + begin)

    codes = view(target.nope, token, 0)
    rope = view(2 * ROPE, token, token - 2 * ROPE)
    if target is V32:
        return codes, view(4 * target.groups, token, target.nope), rope
    return codes, view(target.groups, target.groups + 1, block_size * token), rope


def _grouped(values: torch.Tensor, target: Format) -> torch.Tensor:
    return values.reshape(*values.shape[:-1], target.groups, target.group)


def _encode_scale(scale: torch.Tensor, target: Format) -> torch.Tensor:
    if target is V32:
        return scale.contiguous().view(torch.uint8)
    return (torch.frexp(scale).exponent - 1 + _UE8M0_BIAS).to(torch.uint8)


def _decode_scale(scale_bytes: torch.Tensor, target: Format) -> torch.Tensor:
    if target is V32:
        return scale_bytes.view(torch.float32)
    exponent = scale_bytes.int() - _UE8M0_BIAS
    return torch.ldexp(torch.ones_like(exponent, dtype=torch.float32), exponent)
