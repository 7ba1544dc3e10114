"""EPLB: the published example, equality with an independent reference, and its errors."""

import pytest
import torch

from tests.unit.moe import eplb_reference
from trainer_io.moe.balance import rebalance_experts

# The example of the published README: two layers, 12 experts, 16 replicas on 2 nodes with 8 GPUs.
README_WEIGHT = torch.tensor(
    [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ]
)
README_PLACEMENT = [
    [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
    [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
]


def test_published_example() -> None:
    physical, logical, count = rebalance_experts(README_WEIGHT, 16, 4, 2, 8)
    assert physical.tolist() == README_PLACEMENT
    assert count.sum(-1).tolist() == [16, 16]
    for layer in range(2):
        for expert in range(12):
            slots = logical[layer, expert][: count[layer, expert]]
            assert (physical[layer, slots] == expert).all()
            assert (logical[layer, expert][count[layer, expert] :] == -1).all()


SHAPES = [  # experts, replicas, groups, nodes, gpus
    (12, 16, 4, 2, 8),
    (16, 24, 4, 2, 4),
    (16, 16, 4, 4, 8),
    (32, 40, 8, 2, 8),
    (32, 48, 1, 2, 8),  # groups do not divide by nodes: the global policy
    (24, 32, 6, 4, 16),
    (8, 32, 2, 1, 4),
    (64, 64, 8, 4, 16),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["uniform", "skewed", "ties", "zeros"])
def test_equals_the_slow_reference(shape: tuple[int, int, int, int, int], kind: str) -> None:
    experts, replicas, groups, nodes, gpus = shape
    generator = torch.Generator().manual_seed(sum(shape) + len(kind))
    for _ in range(8):
        weight = _loads(kind, 4, experts, generator)
        physical, logical, count = rebalance_experts(weight, replicas, groups, nodes, gpus)
        wanted = eplb_reference.rebalance(weight, replicas, groups, nodes, gpus)
        assert physical.tolist() == wanted[0]
        assert count.tolist() == wanted[2]
        slots = [[[s for s in e if s >= 0] for e in layer] for layer in logical.tolist()]
        assert slots == wanted[1]


def _loads(kind: str, layers: int, experts: int, generator: torch.Generator) -> torch.Tensor:
    if kind == "zeros":
        return torch.zeros(layers, experts)
    if kind == "ties":
        return torch.randint(0, 4, (layers, experts), generator=generator)
    if kind == "skewed":
        return torch.randn(layers, experts, generator=generator).mul(1.5).exp() * 1000
    return torch.rand(layers, experts, generator=generator)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((16, 5, 2, 8), "num_groups 5 must divide the 12 experts"),
        ((16, 4, 3, 8), "num_nodes 3 must divide num_gpus 8"),
        ((17, 4, 2, 8), "num_gpus 8 must divide num_replicas 17"),
        ((8, 4, 2, 8), "num_replicas 8 must be at least the 12 experts"),
    ],
)
def test_errors_name_the_number(arguments: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rebalance_experts(README_WEIGHT, *arguments)
