"""Joins the results of one request's splits: a softmax over the splits' own weights."""

import torch


def combine_splits(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighs fp32 `out [splits, rows, d_v]` by `lse [splits, rows]` (natural log).

    A split in which a row saw no key has lse -inf and out 0; so has the result when all are such.
    """
    total = torch.logsumexp(lse, 0)
    weight = torch.exp(lse - torch.where(total == float("-inf"), 0.0, total))
    return (out * weight[..., None]).sum(0), total
