"""The published expert-parallel load balancer (deepseek-ai/EPLB), bit-identical and vectorised.

Hierarchical policy: expert groups are packed to nodes, the hottest experts of each node are
replicated there, and the replicas are packed to the node's GPUs. When the groups do not divide by
the nodes, the same is done with one group on one node (global policy).

What makes it fast: every greedy step is done for all layers (and nodes) at once, so the number of
interpreted steps is the number of replicas, not layers x replicas x GPUs. What makes it identical:
the same float32 sums in the same order, the same sort, and the first of equals in each choice.
"""

import numpy as np
import numpy.typing as npt
import torch

Indices = npt.NDArray[np.int64]
Loads = npt.NDArray[np.float32]


def rebalance_experts(
    weight: torch.Tensor, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Places expert replicas so that GPUs carry similar loads.

    Args:
        weight: `[layers, experts]`, load statistics of each logical expert.
        num_replicas: physical experts, a multiple of `num_gpus`, at least the number of experts.
        num_groups: expert groups of the router, dividing the experts.
        num_nodes: server nodes, dividing the GPUs and the replicas.
        num_gpus: GPUs over all nodes.

    Returns:
        `(physical_to_logical [layers, num_replicas], logical_to_physical [layers, experts, most
        replicas of one expert], padded with -1, replica_count [layers, experts])`, all int64.

    Raises:
        ValueError: the numbers do not divide as stated; the message says which.
    """
    _check(weight, num_replicas, num_groups, num_nodes, num_gpus)
    loads = weight.detach().float().cpu().numpy()
    if num_groups % num_nodes != 0:
        num_groups, num_nodes = 1, 1
    physical, rank, count = _hierarchical(loads, num_replicas, num_groups, num_nodes, num_gpus)
    layers, experts = loads.shape
    most = int(count.max())
    logical = np.full((layers, experts * most), -1, np.int64)
    replicas = np.broadcast_to(np.arange(num_replicas), physical.shape)
    np.put_along_axis(logical, physical * most + rank, replicas, -1)
    return (
        torch.from_numpy(physical),
        torch.from_numpy(logical.reshape(layers, experts, most)),
        torch.from_numpy(count),
    )


def _check(weight: torch.Tensor, replicas: int, groups: int, nodes: int, gpus: int) -> None:
    if weight.dim() != 2:
        raise ValueError(f"weight is {list(weight.shape)}: it must be [layers, experts]")
    experts = weight.shape[1]
    rules = {
        f"num_groups {groups} must divide the {experts} experts": experts % groups,
        f"num_nodes {nodes} must divide num_gpus {gpus}": gpus % nodes,
        f"num_gpus {gpus} must divide num_replicas {replicas}": replicas % gpus,
        f"num_replicas {replicas} must be at least the {experts} experts": replicas < experts,
    }
    broken = [rule for rule, remainder in rules.items() if remainder]
    if broken:
        raise ValueError("; ".join(broken))


def _hierarchical(
    loads: Loads, replicas: int, groups: int, nodes: int, gpus: int
) -> tuple[Indices, Indices, Indices]:
    """Returns (physical_to_logical, replica rank, replica count), each `[layers, ...]`."""
    layers, experts = loads.shape
    group_size, node_experts = experts // groups, experts // nodes

    # Groups to nodes. "Middle" order lists the experts node by node.
    group_loads = torch.from_numpy(loads).view(layers, groups, group_size).sum(-1).numpy()
    node, rank_in_node = pack_balanced(group_loads, nodes)
    first = (node * (groups // nodes) + rank_in_node) * group_size
    logical_to_middle = (first[:, :, None] + np.arange(group_size)).reshape(layers, experts)
    middle_to_logical = _inverse(logical_to_middle)

    # Replicas within each node: a row is one (layer, node).
    middle_loads = np.take_along_axis(loads, middle_to_logical, -1).reshape(-1, node_experts)
    replica_to_middle, rank, count = replicate(middle_loads, replicas // nodes)

    # Replicas to the GPUs of their node.
    share = np.divide(middle_loads, count, dtype=np.float32)
    gpu, slot = pack_balanced(np.take_along_axis(share, replica_to_middle, -1), gpus // nodes)
    order = _inverse(gpu * (replicas // gpus) + slot)

    middle = np.take_along_axis(replica_to_middle, order, -1).reshape(layers, nodes, -1)
    middle = middle + np.arange(0, experts, node_experts).reshape(1, -1, 1)
    physical = np.take_along_axis(middle_to_logical, middle.reshape(layers, -1), -1)
    placed_rank = np.take_along_axis(rank, order, -1).reshape(layers, -1)
    logical_count = np.take_along_axis(count.reshape(layers, -1), logical_to_middle, -1)
    return physical, placed_rank, logical_count


def pack_balanced(loads: Loads, packs: int) -> tuple[Indices, Indices]:
    """Packs the items of each row into packs of equal item count, heaviest first (LPT greedy).

    Args:
        loads: `[rows, items]`, items a multiple of `packs`.

    Returns:
        `(pack, rank within the pack)`, each `[rows, items]`.
    """
    rows, items = loads.shape
    capacity = items // packs
    if capacity == 1:
        everyone = np.broadcast_to(np.arange(items), (rows, items))
        return everyone.copy(), np.zeros((rows, items), np.int64)
    order = torch.from_numpy(loads).sort(-1, descending=True).indices.numpy()
    sorted_loads = np.take_along_axis(loads, order, -1)
    row = np.arange(rows)
    # A full pack gets an infinite weight, which also is what the choice below has to skip.
    weights = np.zeros((rows, packs), np.float32)
    filled = np.zeros((rows, packs), np.int64)
    chosen = np.empty((items, rows), np.int64)
    rank = np.empty((items, rows), np.int64)
    for item in range(items):
        pack = weights.argmin(-1)
        chosen[item] = pack
        rank[item] = count = filled[row, pack]
        filled[row, pack] = count + 1
        full = count + 1 == capacity
        weights[row, pack] = np.where(full, np.inf, weights[row, pack] + sorted_loads[:, item])
    pack_of, rank_of = np.empty_like(order), np.empty_like(order)
    np.put_along_axis(pack_of, order, chosen.T, -1)
    np.put_along_axis(rank_of, order, rank.T, -1)
    return pack_of, rank_of


def replicate(loads: Loads, replicas: int) -> tuple[Indices, Indices, Indices]:
    """Gives each extra replica to the expert with the highest load per replica.

    Args:
        loads: `[rows, experts]`.

    Returns:
        `(expert of each replica [rows, replicas], its rank among that expert's replicas
        [rows, replicas], replicas of each expert [rows, experts])`.
    """
    rows, experts = loads.shape
    expert = np.empty((rows, replicas), np.int64)
    expert[:, :experts] = np.arange(experts)
    rank = np.zeros((rows, replicas), np.int64)
    count = np.ones((rows, experts), np.int64)
    share = loads.astype(np.float32, copy=True)
    row = np.arange(rows)
    for replica in range(experts, replicas):
        hottest = share.argmax(-1)
        expert[:, replica] = hottest
        rank[:, replica] = now = count[row, hottest]
        count[row, hottest] = now + 1
        share[row, hottest] = loads[row, hottest] / (now + 1).astype(np.float32)
    return expert, rank, count


def _inverse(permutation: Indices) -> Indices:
    inverse = np.empty_like(permutation)
    positions = np.broadcast_to(np.arange(permutation.shape[-1]), permutation.shape)
    np.put_along_axis(inverse, permutation, positions, -1)
    return inverse
