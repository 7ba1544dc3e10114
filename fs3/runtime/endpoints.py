"""Where services answer, read from the routing."""

from fs3.config.cluster import Endpoint
from fs3.model.routing import NodeKind, NodeState, Routing


def metadata_endpoints(routing: Routing) -> tuple[Endpoint, ...]:
    """Of the living metadata servers, in id order."""
    return tuple(
        Endpoint(node.host, node.port)
        for node in routing.nodes
        if node.kind is NodeKind.META and node.state is NodeState.ALIVE
    )
