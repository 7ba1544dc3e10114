"""A slow, independent statement of the published EPLB algorithm: one layer, plain loops.

Float32 tensors carry the sums, because the placement of near-equal loads depends on rounding.
"""

import torch


def rebalance(
    weight: torch.Tensor, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> tuple[list[list[int]], list[list[list[int]]], list[list[int]]]:
    """(physical to logical, physical slots of each expert in replica order, replica counts)."""
    if num_groups % num_nodes:
        num_groups, num_nodes = 1, 1
    layers = [
        _one_layer(row, num_replicas, num_groups, num_nodes, num_gpus) for row in weight.float()
    ]
    return ([p for p, _, _ in layers], [s for _, s, _ in layers], [c for _, _, c in layers])


def _one_layer(
    load: torch.Tensor, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> tuple[list[int], list[list[int]], list[int]]:
    experts = len(load)
    size = experts // num_groups
    gpus_per_node, slots_per_gpu = num_gpus // num_nodes, num_replicas // num_gpus
    groups_of_node = _pack(load.view(num_groups, size).sum(-1), num_nodes)
    physical: list[int] = []
    replica_slots: list[dict[int, int]] = [{} for _ in range(experts)]
    counts = [0] * experts
    for groups in groups_of_node:
        local = [group * size + i for group in groups for i in range(size)]
        replicas = [(expert, 0) for expert in local]
        count = dict.fromkeys(local, 1)
        while len(replicas) < num_replicas // num_nodes:
            shares = torch.stack([load[e] / count[e] for e in local])
            hottest = local[int(shares.argmax())]
            replicas.append((hottest, count[hottest]))
            count[hottest] += 1
        shares = torch.stack([load[e] / count[e] for e, _ in replicas])
        for members in _pack(shares, gpus_per_node):
            assert len(members) == slots_per_gpu
            for member in members:
                expert, rank = replicas[member]
                replica_slots[expert][rank] = len(physical)
                physical.append(expert)
        for expert, number in count.items():
            counts[expert] = number
    slots = [[ranks[r] for r in range(len(ranks))] for ranks in replica_slots]
    return physical, slots, counts


def _pack(loads: torch.Tensor, packs: int) -> list[list[int]]:
    capacity = len(loads) // packs
    if capacity == 1:
        return [[i] for i in range(packs)]
    members: list[list[int]] = [[] for _ in range(packs)]
    sums = [torch.zeros(()) for _ in range(packs)]
    for item in loads.sort(descending=True).indices.tolist():
        open_packs = [p for p in range(packs) if len(members[p]) < capacity]
        pack = min(open_packs, key=lambda p: float(sums[p]))
        members[pack].append(item)
        sums[pack] = sums[pack] + loads[item]
    return members
