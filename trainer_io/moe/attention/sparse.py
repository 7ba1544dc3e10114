"""`flash_mla_sparse_fwd`: each query attends to its own choice of keys (sparse prefill)."""

import torch

from trainer_io.moe.attention.tiles import TILE_TOKENS, Tile, attend, finish


def flash_mla_sparse_fwd(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attends to the keys that `indices` names.

    Args:
        q: `[s_q, h_q, d]`; any strides.
        kv: `[s_kv, 1, d]`; its first `d_v` columns are the values.
        indices: `[s_q, 1, topk]` int32; those below 0 or at least `s_kv` are skipped.
        attn_sink: `[h_q]` fp32, logit that takes part in the softmax and adds nothing.
        topk_length: `[s_q]` int32, only the leftmost indices of each query count.

    Returns:
        `(out [s_q, h_q, d_v] as q, max_logits [s_q, h_q], lse [s_q, h_q])`, natural log, fp32. A
        query that sees no key has out 0, max_logits -inf and lse +inf.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    _check(q, kv, indices, d_v)
    if attn_sink is not None and tuple(attn_sink.shape) != (q.shape[1],):
        raise ValueError(f"attn_sink is {list(attn_sink.shape)}: it must be [{q.shape[1]}]")
    if topk_length is not None and tuple(topk_length.shape) != (q.shape[0],):
        raise ValueError(f"topk_length is {list(topk_length.shape)}: it must be [{q.shape[0]}]")
    s_q, h_q, _ = q.shape
    out = q.new_empty(s_q, h_q, d_v)
    max_logits = torch.empty(s_q, h_q, dtype=torch.float32, device=q.device)
    lse = torch.empty_like(max_logits)
    for j in range(s_q):
        count = indices.shape[2] if topk_length is None else int(topk_length[j])
        chosen = indices[j, 0, :count]
        rows = chosen[(chosen >= 0) & (chosen < kv.shape[0])].long()
        tiles = (Tile(kv[tile, 0].float()) for tile in torch.split(rows, TILE_TOKENS) if len(tile))
        attended = attend(q[j].float() * sm_scale, tiles, d_v)
        max_logits[j] = attended.max_logit
        out[j], lse[j] = finish(attended, attn_sink, q.dtype)
    return out, max_logits, lse


def _check(q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, d_v: int) -> None:
    if q.dtype != kv.dtype:
        raise ValueError(f"q is {q.dtype} and kv {kv.dtype}: they must be the same")
    if indices.dtype != torch.int32:
        raise ValueError(f"indices are {indices.dtype}: they must be int32")
    if kv.shape[1] != 1 or kv.shape[2] != q.shape[2]:
        raise ValueError(f"kv is {list(kv.shape)}: it must be [s_kv, 1, {q.shape[2]}]")
    if tuple(indices.shape[:2]) != (q.shape[0], 1):
        raise ValueError(f"indices are {list(indices.shape)}: they must be [{q.shape[0]}, 1, topk]")
    if not 0 < d_v <= q.shape[2]:
        raise ValueError(f"d_v is {d_v}: values are the first of {q.shape[2]} columns")
