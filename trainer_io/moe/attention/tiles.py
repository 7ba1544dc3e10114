"""Softmax attention over tiles of keys on the CPU: fp32 inside, whatever the storage.

CPUs without bf16 units multiply fp32 several times faster than bf16, so a tile is converted once,
used for the scores and the values, and dropped. Scores never exist for all keys at once: each tile
rescales what the earlier ones summed up (online softmax). The caller rounds, once, at the end.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import torch

TILE_TOKENS: Final = 512
"""A tile of 512 x 576 fp32 keys is 1.2 MB and stays in the second-level cache."""


class Tile(NamedTuple):
    """Keys `[tokens, d]` in fp32; their first columns are the values, too.

    `visible` is `[rows, tokens]`, True where a row may attend; None when all rows see all tokens.
    """

    keys: torch.Tensor
    visible: torch.Tensor | None = None


class Attended(NamedTuple):
    """Per row: `out [rows, d_v]`, largest logit and natural-log sum of exponentials, in fp32.

    A row without any visible token has out 0 and -inf in both others.
    """

    out: torch.Tensor
    max_logit: torch.Tensor
    lse: torch.Tensor


def attend(query: torch.Tensor, tiles: Iterable[Tile], head_dim_v: int) -> Attended:
    """Attends fp32 queries `[rows, d]`, already multiplied by the softmax scale, to all tiles."""
    rows = query.shape[0]
    largest = query.new_full((rows,), float("-inf"))
    weight = query.new_zeros(rows)
    out = query.new_zeros(rows, head_dim_v)
    for keys, visible in tiles:
        scores = query @ keys.T
        if visible is not None:
            scores.masked_fill_(~visible, float("-inf"))
        grown = torch.maximum(largest, scores.amax(1))
        shift = torch.where(grown == float("-inf"), 0.0, grown)
        scores.sub_(shift[:, None]).exp_()
        kept = torch.exp(largest - shift)
        weight = weight * kept + scores.sum(1)
        out.mul_(kept[:, None]).addmm_(scores, keys[:, :head_dim_v])
        largest = grown
    seen = torch.where(weight == 0, 1.0, weight)
    return Attended(out / seen[:, None], largest, largest + seen.log())


def finish(
    attended: Attended, attn_sink: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and lse as the published functions return them.

    The sink (per row) takes its share of the softmax from the output but not from the lse; a lonely
    row, one that sees no key, has out 0 and lse +inf.
    """
    out, _, lse = attended
    lonely = lse == float("-inf")
    if attn_sink is not None:
        share = torch.sigmoid(lse - attn_sink).masked_fill(lonely, 0.0)
        out = out * share[:, None]
    return out.to(dtype), lse.masked_fill(lonely, float("inf"))
