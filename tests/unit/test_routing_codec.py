"""Routing updates: applying a difference gives exactly the new routing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fs3.errors import StaleRouting
from fs3.ids import ChainId, ChainVersion, ClusterId, Incarnation, NodeId, TargetId
from fs3.model.routing import (
    Chain,
    ChainTable,
    Member,
    Node,
    NodeKind,
    NodeState,
    Routing,
    TargetState,
)
from fs3.wire import routing as codec

CLUSTER = ClusterId(b"c" * 16)

nodes = st.builds(
    Node,
    id=st.integers(1, 6).map(NodeId),
    kind=st.sampled_from(NodeKind),
    incarnation=st.integers(1, (1 << 63) - 1).map(Incarnation),
    state=st.sampled_from(NodeState),
    host=st.sampled_from(["127.0.0.1", "::1", "node.example"]),
    port=st.integers(1, 65535),
    domain=st.text(max_size=4),
    weight=st.sampled_from([0.5, 1.0, 2.0]),
)
members = st.builds(
    Member,
    target=st.integers(0, (1 << 64) - 1).map(TargetId),
    generation=st.integers(0, (1 << 64) - 1),
    state=st.sampled_from(TargetState),
    host=st.just("127.0.0.1"),
    port=st.integers(1, 65535),
    incarnation=st.integers(0, (1 << 63) - 1).map(Incarnation),
)
chains = st.builds(
    Chain,
    id=st.integers(1, 6).map(ChainId),
    version=st.integers(1, 1 << 40).map(ChainVersion),
    members=st.lists(members, max_size=3).map(tuple),
)
tables = st.builds(
    ChainTable,
    id=st.just(1),
    version=st.integers(1, 3),
    chains=st.lists(st.integers(1, 6).map(ChainId), max_size=4).map(tuple),
)


def routings(version: int, epoch: int = 1) -> st.SearchStrategy[Routing]:
    def unique(items: list[Node] | list[Chain]) -> tuple[Node, ...] | tuple[Chain, ...]:
        kept = {item.id: item for item in items}
        return tuple(kept[key] for key in sorted(kept))  # type: ignore[return-value]

    return st.builds(
        Routing,
        cluster_id=st.just(CLUSTER),
        epoch=st.just(epoch),
        version=st.just(version),
        nodes=st.lists(nodes, max_size=4).map(unique),
        chains=st.lists(chains, max_size=4).map(unique),
        tables=st.lists(tables, max_size=1).map(tuple),
    )


@given(routings(version=7))
def test_a_snapshot_holds_everything(routing: Routing) -> None:
    assert codec.apply(None, codec.snapshot(routing)) == routing


@given(routings(version=7), routings(version=9))
def test_a_difference_gives_the_new_routing(old: Routing, new: Routing) -> None:
    # A chain table, once made, is never withdrawn.
    new = Routing(CLUSTER, 1, 9, new.nodes, new.chains, new.tables or old.tables)
    merged = codec.apply(old, codec.difference(old, new))
    assert (merged.nodes, merged.chains) == (new.nodes, new.chains)
    assert set(new.tables) <= set(merged.tables)
    assert (merged.epoch, merged.version) == (1, 9)


@given(routings(version=7), routings(version=8, epoch=2))
def test_a_new_epoch_starts_from_a_snapshot(old: Routing, new: Routing) -> None:
    update = codec.difference(old, new)
    assert update.base == 0
    assert codec.apply(old, update) == new


def test_a_difference_is_small() -> None:
    kept = tuple(Chain(ChainId(i), ChainVersion(1), ()) for i in range(1, 100))
    old = Routing(CLUSTER, 1, 1, chains=kept)
    new = Routing(CLUSTER, 1, 2, chains=(*kept, Chain(ChainId(100), ChainVersion(1), ())))
    assert [chain.id for chain in codec.difference(old, new).chains] == [100]


def test_a_difference_to_another_version_is_refused() -> None:
    old, new = Routing(CLUSTER, 1, 5), Routing(CLUSTER, 1, 6)
    with pytest.raises(StaleRouting):
        codec.apply(Routing(CLUSTER, 1, 4), codec.difference(old, new))
    with pytest.raises(StaleRouting):
        codec.apply(None, codec.difference(old, new))
