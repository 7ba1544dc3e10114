"""`flash_mla_with_kvcache`: one decoding step against a paged latent cache, dense or sparse.

Keys and values are the same memory: values are the first `head_dim_v` columns of each cached row.
The causal mask aligns to the end: query j of `s_q` sees the keys up to `length - s_q + j`. Cache
slots past a request's length, pages past its last one and tokens not in its indices are never read.
"""

from collections.abc import Iterator

import torch

from trainer_io.moe.attention.fp8_cache import format_of, read_tokens
from trainer_io.moe.attention.metadata import DecodeConfig, FlashMLASchedMeta
from trainer_io.moe.attention.tiles import TILE_TOKENS, Tile, attend, finish

QUERY_TYPES = (torch.bfloat16, torch.float16, torch.float32)

Scope = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""A packed cache, the slots of it that each query attends to, and how many of them count."""


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta,
    num_splits: None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attends `s_q` new queries of each request to its cache.

    Args:
        q: `[batch, s_q, h_q, d]`; bf16, fp16 or fp32, any strides.
        k_cache: `[pages, page_size, h_k, d]`; with `is_fp8_kvcache` packed, see `fp8_cache`.
        block_table: `[batch, most pages]` int32, pages of each request; dense only.
        cache_seqlens: `[batch]` int32, tokens of each request, new ones included; dense only.
        tile_scheduler_metadata: of `get_mla_metadata`, shared by calls of the same shapes.
        num_splits: must be None; the published interface keeps the place.
        softmax_scale: `d ** -0.5` by default.
        indices: `[batch, s_q, topk]` int32, cache slots (page * page_size + offset) that each query
            attends to; entries outside the cache, such as -1, are skipped. Makes the call sparse.
        attn_sink: `[h_q]` fp32, logit that takes part in the softmax and adds nothing.
        extra_k_cache, extra_indices_in_kvcache: a second cache attended in the same softmax.
        topk_length, extra_topk_length: `[batch]`, only the leftmost indices count.

    Returns:
        `(out [batch, s_q, h_q, head_dim_v] as q, lse [batch, h_q, s_q] fp32)`; a query that sees no
        key has out 0 and lse +inf.

    Raises:
        ValueError: arguments that do not go together; the message names the rule.
    """
    if num_splits is not None:
        raise ValueError("num_splits must be None: the schedule lives in the scheduler metadata")
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    tile_scheduler_metadata.agree(
        DecodeConfig(
            batch=q.shape[0],
            s_q=q.shape[1],
            h_q=q.shape[2],
            page_size=k_cache.shape[1],
            h_k=k_cache.shape[2],
            causal=causal,
            is_fp8_kvcache=is_fp8_kvcache,
            topk=_extent(indices, -1),
            extra_page_size=_extent(extra_k_cache, 1),
            extra_topk=_extent(extra_indices_in_kvcache, -1),
        )
    )
    _check_query(q, k_cache, head_dim_v, is_fp8_kvcache)
    if indices is None:
        _refuse(
            attn_sink=attn_sink,
            extra_k_cache=extra_k_cache,
            extra_indices_in_kvcache=extra_indices_in_kvcache,
            topk_length=topk_length,
            extra_topk_length=extra_topk_length,
        )
        if block_table is None or cache_seqlens is None:
            raise ValueError("dense attention needs block_table and cache_seqlens")
        _check_table(q, k_cache, block_table, cache_seqlens)
        return _dense(q, k_cache, block_table, cache_seqlens, head_dim_v, scale, causal)
    if causal or not is_fp8_kvcache:
        raise ValueError("sparse attention needs causal=False and is_fp8_kvcache=True")
    if (extra_k_cache is None) != (extra_indices_in_kvcache is None):
        raise ValueError("extra_k_cache and extra_indices_in_kvcache come together")
    caches: list[Scope] = [(k_cache, indices, topk_length)]
    if extra_k_cache is not None and extra_indices_in_kvcache is not None:
        caches.append((extra_k_cache, extra_indices_in_kvcache, extra_topk_length))
    _check_choice(q, caches, attn_sink)
    return _sparse(q, caches, head_dim_v, scale, attn_sink)


def _extent(tensor: torch.Tensor | None, dimension: int) -> int | None:
    return None if tensor is None else tensor.shape[dimension]


def _check_query(q: torch.Tensor, k_cache: torch.Tensor, head_dim_v: int, packed: bool) -> None:
    h_q, head_dim = q.shape[2:]
    if q.dtype not in QUERY_TYPES:
        raise ValueError(f"q is {q.dtype}: it must be bfloat16, float16 or float32")
    if h_q % k_cache.shape[2]:
        raise ValueError(f"{h_q} query heads do not divide by {k_cache.shape[2]} key heads")
    if not 0 < head_dim_v <= head_dim:
        raise ValueError(f"head_dim_v is {head_dim_v}: values are the first of {head_dim} columns")
    expected = format_of(head_dim).token_bytes if packed else head_dim
    if k_cache.shape[3] != expected:
        raise ValueError(f"k_cache has rows of {k_cache.shape[3]}: {expected} go with this q")
    if packed and k_cache.element_size() != 1:
        raise ValueError(f"k_cache is {k_cache.dtype}: a packed cache is float8_e4m3fn or uint8")
    if not packed and k_cache.dtype != q.dtype:
        raise ValueError(f"k_cache is {k_cache.dtype} and q {q.dtype}: they must be the same")


def _refuse(**sparse_only: torch.Tensor | None) -> None:
    given = [name for name, value in sparse_only.items() if value is not None]
    if given:
        raise ValueError(f"{', '.join(given)} need indices: they are for sparse attention")


def _check_table(
    q: torch.Tensor, k_cache: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor
) -> None:
    batch, page = q.shape[0], k_cache.shape[1]
    if block_table.dtype != torch.int32 or lengths.dtype != torch.int32:
        raise ValueError("block_table and cache_seqlens must be int32")
    if block_table.shape[0] != batch or tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"block_table {list(block_table.shape)} and cache_seqlens {list(lengths.shape)} must "
            f"have one row for each of {batch} requests"
        )
    longest = int(lengths.max()) if batch else 0
    if longest > block_table.shape[1] * page:
        raise ValueError(
            f"a request of {longest} tokens needs {-(-longest // page)} pages and block_table has "
            f"{block_table.shape[1]}"
        )


def _check_choice(q: torch.Tensor, caches: list[Scope], attn_sink: torch.Tensor | None) -> None:
    batch, s_q, h_q, head_dim = q.shape
    width = format_of(head_dim).token_bytes
    for cache, indices, lengths in caches:
        if tuple(cache.shape[2:]) != (1, width) or cache.element_size() != 1:
            raise ValueError(
                f"a cache is {list(cache.shape)}: it must be packed [.., .., 1, {width}]"
            )
        if indices.dtype != torch.int32 or tuple(indices.shape[:2]) != (batch, s_q):
            raise ValueError(
                f"indices are {list(indices.shape)} {indices.dtype}: they must be "
                f"[{batch}, {s_q}, topk] int32"
            )
        if lengths is not None and tuple(lengths.shape) != (batch,):
            raise ValueError(f"topk_length is {list(lengths.shape)}: it must be [{batch}]")
    if attn_sink is not None and tuple(attn_sink.shape) != (h_q,):
        raise ValueError(f"attn_sink is {list(attn_sink.shape)}: it must be [{h_q}]")


def _dense(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, s_q, h_q, head_dim = q.shape
    h_k = k_cache.shape[2]
    out = q.new_empty(batch, s_q, h_q, head_dim_v)
    lse = torch.empty(batch, h_q, s_q, dtype=torch.float32, device=q.device)
    for b, length in enumerate(cache_seqlens.tolist()):
        for head in range(h_k):
            mine = slice(head * (h_q // h_k), (head + 1) * (h_q // h_k))
            query = q[b, :, mine].float().reshape(-1, head_dim) * scale
            reach = _reach(length, s_q, h_q // h_k, q.device) if causal and s_q > 1 else None
            tiles = _tiles(k_cache, block_table[b], length, head, head_dim, reach)
            one, one_lse = finish(attend(query, tiles, head_dim_v), None, q.dtype)
            out[b, :, mine] = one.view(s_q, -1, head_dim_v)
            lse[b, mine] = one_lse.view(s_q, -1).T
    return out, lse


def _reach(length: int, s_q: int, heads: int, device: torch.device) -> torch.Tensor:
    """The last key that each row (query, head) sees."""
    return torch.arange(length - s_q, length, device=device).repeat_interleave(heads)


def _tiles(
    k_cache: torch.Tensor,
    pages: torch.Tensor,
    length: int,
    head: int,
    head_dim: int,
    reach: torch.Tensor | None,
) -> Iterator[Tile]:
    page = k_cache.shape[1]
    step = max(TILE_TOKENS // page, 1)
    used = pages[: -(-length // page)].long()
    for first in range(0, len(used), step):
        begin = first * page
        keys = _read_pages(k_cache, used[first : first + step], head, head_dim, length - begin)
        if reach is None:
            yield Tile(keys)
        else:
            position = torch.arange(begin, begin + len(keys), device=keys.device)
            yield Tile(keys, position <= reach[:, None])


def _read_pages(
    k_cache: torch.Tensor, pages: torch.Tensor, head: int, head_dim: int, most: int
) -> torch.Tensor:
    """At most `most` tokens of these pages in fp32: what lies behind them is never touched."""
    page = k_cache.shape[1]
    if k_cache.element_size() > 1:
        return k_cache[pages, :, head].flatten(0, 1)[:most].float()
    slots = pages[:, None] * page + torch.arange(page, device=pages.device)
    return read_tokens(k_cache, slots.flatten()[:most], format_of(head_dim))


def _sparse(
    q: torch.Tensor,
    caches: list[Scope],
    head_dim_v: int,
    scale: float,
    attn_sink: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, s_q, h_q, head_dim = q.shape
    out = q.new_empty(batch, s_q, h_q, head_dim_v)
    lse = torch.empty(batch, h_q, s_q, dtype=torch.float32, device=q.device)
    for b in range(batch):
        for j in range(s_q):
            chosen = (
                Tile(read_tokens(cache, slots, format_of(head_dim)))
                for cache, indices, lengths in caches
                for slots in _slots(cache, indices[b, j], lengths, b)
            )
            attended = attend(q[b, j].float() * scale, chosen, head_dim_v)
            out[b, j], lse[b, :, j] = finish(attended, attn_sink, q.dtype)
    return out, lse


def _slots(
    cache: torch.Tensor, indices: torch.Tensor, lengths: torch.Tensor | None, request: int
) -> Iterator[torch.Tensor]:
    """The slots of one query that count, a tile at a time."""
    if lengths is not None:
        indices = indices[: int(lengths[request])]
    inside = (indices >= 0) & (indices < cache.shape[0] * cache.shape[1])
    slots = indices[inside].long()
    return (tile for tile in torch.split(slots, TILE_TOKENS) if len(tile))
