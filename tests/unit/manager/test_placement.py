"""Chains are spread by weight, replicas apart, peers balanced."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fs3.errors import InvalidArgument
from fs3.ids import NodeId, TargetId, node_of, target_id
from meta_service.core.placement import Place, place_chains


def place(node: int, targets: int, domain: str = "", weight: float = 1.0) -> Place:
    own = NodeId(node)
    return Place(own, domain, weight, tuple(target_id(own, 0, i) for i in range(targets)))


def loads(chains: list[tuple[TargetId, ...]]) -> Counter[int]:
    return Counter(node_of(target) for chain in chains for target in chain)


@pytest.mark.parametrize("nodes", range(3, 11))
@pytest.mark.parametrize("replicas", [2, 3])
def test_regular_clusters_are_even(nodes: int, replicas: int) -> None:
    targets = 6 * replicas
    chains = place_chains(
        [place(n, targets) for n in range(1, nodes + 1)], replicas=replicas, chains=6 * nodes
    )
    pairs = Counter(
        pair for chain in chains for pair in combinations(sorted(map(node_of, chain)), 2)
    )
    heads = Counter(node_of(chain[0]) for chain in chains)
    mean = 6 * nodes * replicas * (replicas - 1) / (nodes * (nodes - 1))
    assert set(loads(chains).values()) == {targets}
    assert max(heads.values()) - min(heads.values()) <= 2
    assert len(pairs) == nodes * (nodes - 1) // 2
    assert all(abs(count - mean) <= 2 for count in pairs.values())


@given(
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=2, max_size=8),
    replicas=st.integers(1, 3),
    chains=st.integers(1, 20),
)
def test_every_target_is_used_once_and_replicas_are_apart(
    weights: list[float], replicas: int, chains: int
) -> None:
    places = [place(n, 60, weight=weight) for n, weight in enumerate(weights, 1)]
    if len(places) < replicas:
        with pytest.raises(InvalidArgument, match="need as many storage nodes"):
            place_chains(places, replicas=replicas, chains=chains)
        return
    made = place_chains(places, replicas=replicas, chains=chains)
    assert len(made) == chains
    used = [target for chain in made for target in chain]
    assert len(used) == len(set(used))
    assert all(len(set(map(node_of, chain))) == replicas for chain in made)


def test_shares_follow_weights() -> None:
    made = place_chains(
        [place(1, 100), place(2, 100), place(3, 100, weight=2.0), place(4, 100, weight=2.0)],
        replicas=2,
        chains=60,
    )
    for node, share in {1: 20, 2: 20, 3: 40, 4: 40}.items():
        assert abs(loads(made)[node] - share) <= 2


def test_domains_are_kept_apart_as_far_as_there_are_enough() -> None:
    racks = [place(n, 30, domain=f"rack {n % 3}") for n in range(6)]
    for chain in place_chains(racks, replicas=3, chains=20):
        assert {node_of(target) % 3 for target in chain} == {0, 1, 2}
    one_rack = [place(n, 30, domain="rack") for n in range(1, 4)]
    assert len(place_chains(one_rack, replicas=2, chains=9)) == 9


def test_too_few_targets_is_said() -> None:
    with pytest.raises(InvalidArgument, match="for 3 chains of 2 replicas only"):
        place_chains([place(1, 3), place(2, 3)], replicas=2, chains=4)
