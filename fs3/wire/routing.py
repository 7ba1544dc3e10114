"""Routing on the control plane: model <-> protobuf, and the difference between two versions.

A watcher gets a snapshot first and then only what changed. `difference` and `apply` are inverse:
applying the difference to the old routing gives the new one, whatever changed between them.
"""

from collections.abc import Iterable
from typing import TypeVar

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
from fs3.wire.proto import routing_pb2

T = TypeVar("T", Node, Chain, ChainTable)


def snapshot(routing: Routing) -> routing_pb2.RoutingUpdate:
    """Everything, for a receiver that knows nothing."""
    return routing_pb2.RoutingUpdate(
        cluster_id=routing.cluster_id,
        epoch=routing.epoch,
        version=routing.version,
        nodes=map(encode_node, routing.nodes),
        chains=map(encode_chain, routing.chains),
        tables=map(encode_table, routing.tables),
    )


def difference(old: Routing, new: Routing) -> routing_pb2.RoutingUpdate:
    """What turns `old` into `new`; a snapshot when they are of different epochs."""
    if old.epoch != new.epoch or old.version == 0:
        return snapshot(new)
    return routing_pb2.RoutingUpdate(
        cluster_id=new.cluster_id,
        epoch=new.epoch,
        version=new.version,
        base=old.version,
        nodes=map(encode_node, _changed(old.nodes, new.nodes)),
        chains=map(encode_chain, _changed(old.chains, new.chains)),
        tables=map(encode_table, _changed(old.tables, new.tables)),
        removed_nodes={n.id for n in old.nodes} - {n.id for n in new.nodes},
        removed_chains={c.id for c in old.chains} - {c.id for c in new.chains},
    )


def apply(routing: Routing | None, update: routing_pb2.RoutingUpdate) -> Routing:
    """The routing after `update`.

    Raises:
        StaleRouting: the update is a delta to another version than `routing`; ask for a snapshot.
    """
    if update.base == 0:
        nodes: dict[int, Node] = {}
        chains: dict[int, Chain] = {}
        tables: dict[tuple[int, int], ChainTable] = {}
    elif routing is None or (routing.epoch, routing.version) != (update.epoch, update.base):
        raise StaleRouting(f"a change to routing version {update.base} does not apply here")
    else:
        nodes = {n.id: n for n in routing.nodes if n.id not in update.removed_nodes}
        chains = {c.id: c for c in routing.chains if c.id not in update.removed_chains}
        tables = {(t.id, t.version): t for t in routing.tables}
    nodes |= {n.id: decode_node(n) for n in update.nodes}
    chains |= {c.id: decode_chain(c) for c in update.chains}
    tables |= {(t.id, t.version): decode_table(t) for t in update.tables}
    return Routing(
        cluster_id=ClusterId(update.cluster_id),
        epoch=update.epoch,
        version=update.version,
        nodes=tuple(nodes[key] for key in sorted(nodes)),
        chains=tuple(chains[key] for key in sorted(chains)),
        tables=tuple(tables[key] for key in sorted(tables)),
    )


def encode_node(node: Node) -> routing_pb2.Node:
    return routing_pb2.Node(
        id=node.id,
        kind=node.kind,
        incarnation=node.incarnation,
        state=node.state,
        host=node.host,
        port=node.port,
        domain=node.domain,
        weight=node.weight,
    )


def decode_node(node: routing_pb2.Node) -> Node:
    return Node(
        id=NodeId(node.id),
        kind=NodeKind(node.kind),
        incarnation=Incarnation(node.incarnation),
        state=NodeState(node.state),
        host=node.host,
        port=node.port,
        domain=node.domain,
        weight=node.weight,
    )


def encode_chain(chain: Chain) -> routing_pb2.Chain:
    return routing_pb2.Chain(
        id=chain.id,
        version=chain.version,
        scheme=chain.scheme,
        members=(
            routing_pb2.Member(
                target=member.target,
                generation=member.generation,
                state=member.state,
                host=member.host,
                port=member.port,
                incarnation=member.incarnation,
            )
            for member in chain.members
        ),
    )


def decode_chain(chain: routing_pb2.Chain) -> Chain:
    return Chain(
        id=ChainId(chain.id),
        version=ChainVersion(chain.version),
        scheme=chain.scheme,
        members=tuple(
            Member(
                target=TargetId(member.target),
                generation=member.generation,
                state=TargetState(member.state),
                host=member.host,
                port=member.port,
                incarnation=Incarnation(member.incarnation),
            )
            for member in chain.members
        ),
    )


def encode_table(table: ChainTable) -> routing_pb2.ChainTable:
    return routing_pb2.ChainTable(id=table.id, version=table.version, chains=table.chains)


def decode_table(table: routing_pb2.ChainTable) -> ChainTable:
    return ChainTable(id=table.id, version=table.version, chains=tuple(map(ChainId, table.chains)))


def _changed(old: Iterable[T], new: Iterable[T]) -> list[T]:
    known = set(old)
    return [item for item in new if item not in known]
