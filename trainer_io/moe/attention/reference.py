"""Plain float64 attention: one request and one query head at a time, for comparison only."""

import torch


def attend_reference(
    query: torch.Tensor,
    keys: torch.Tensor,
    head_dim_v: int,
    scale: float,
    visible: torch.Tensor,
    attn_sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries `[heads, d]` against `[tokens, d]`, of which those `visible [tokens]` count.

    Returns:
        `(out [heads, head_dim_v], largest logit [heads], lse [heads])` in float64; a query that
        sees nothing has out 0, largest logit -inf and lse +inf.
    """
    seen = keys[visible].double()
    logits = scale * query.double() @ seen.T
    if seen.shape[0] == 0:
        lonely = torch.full((query.shape[0],), float("inf"), dtype=torch.float64)
        return torch.zeros(query.shape[0], head_dim_v, dtype=torch.float64), -lonely, lonely
    lse = torch.logsumexp(logits, 1)
    out = torch.softmax(logits, 1) @ seen[:, :head_dim_v]
    if attn_sink is not None:
        out = out / (1 + torch.exp(attn_sink.double() - lse))[:, None]
    return out, logits.amax(1), lse


def dense_decode_reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    softmax_scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `flash_mla_with_kvcache` computes without indices, in float64."""
    batch, s_q, h_q, _ = q.shape
    page, h_k = k_cache.shape[1:3]
    out = torch.empty(batch, s_q, h_q, head_dim_v, dtype=torch.float64)
    lse = torch.empty(batch, h_q, s_q, dtype=torch.float64)
    for b, length in enumerate(cache_seqlens.tolist()):
        pages = block_table[b, : -(-length // page)].long()
        tokens = k_cache[pages].flatten(0, 1)[:length]
        for j in range(s_q):
            reach = length - s_q + j if causal else length
            visible = torch.arange(length) <= reach
            for h in range(h_q):
                keys = tokens[:, h // (h_q // h_k)]
                one, _, one_lse = attend_reference(
                    q[b, j, h : h + 1], keys, head_dim_v, softmax_scale, visible
                )
                out[b, j, h], lse[b, h, j] = one[0], one_lse[0]
    return out, lse
