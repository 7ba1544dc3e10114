"""fs3 status"""

from typing import TYPE_CHECKING, Any

import click

from fs3.cli.cluster import ask
from fs3.cli.output import json_option, print_json
from fs3.cli.settings import Settings, location_options

if TYPE_CHECKING:
    from fs3.wire.proto.admin_pb2 import ClusterStatus, NodeStatus
    from fs3.wire.proto.routing_pb2 import Chain


@click.command()
@json_option
@location_options
@click.pass_obj
def command(settings: Settings, as_json: bool) -> None:
    """Show nodes, chains and where the cluster answers."""
    url, status = ask(settings, lambda admin: admin.status())
    if as_json:
        print_json(describe(url, status))
    else:
        click.echo(draw(url, status))


def describe(url: str, status: "ClusterStatus") -> dict[str, Any]:
    """What `--json` prints; keys are only ever added."""
    from fs3.model.routing import NodeKind

    nodes = sorted(status.nodes, key=lambda n: n.node.id)
    return {
        "healthy": status.healthy,
        "writable": status.writable,
        "nodes": [_node(n) for n in nodes if n.node.kind == NodeKind.STORAGE],
        "metadata": [_node(n) for n in nodes if n.node.kind == NodeKind.META],
        "chains": [_chain(chain) for chain in status.chains],
        "version": status.cluster.software,
        "url": url,
        "cluster_id": status.cluster.cluster_id.hex(),
        "epoch": status.cluster.epoch,
        "routing_version": status.routing_version,
        "clients": status.clients,
    }


def draw(url: str, status: "ClusterStatus") -> str:
    """For people."""
    from fs3.units import format_bytes

    seen = describe(url, status)
    whole = sum(1 for chain in seen["chains"] if chain["complete"])
    lines = [
        f"{url}  {'healthy' if status.healthy else 'NOT HEALTHY: see `fs3 health`'}",
        f"chains   {whole} of {len(seen['chains'])} with all replicas serving",
        f"clients  {status.clients}",
        "",
        "node    state  address                 targets       used       free",
    ]
    lines += (
        f"{n['id']:<7} {n['state']:<6} {n['host']}:{n['port']:<{22 - len(n['host'])}} "
        f"{n['targets']:>7} {format_bytes(n['used_bytes']):>10} {format_bytes(n['free_bytes']):>10}"
        for n in seen["nodes"]
    )
    incomplete = [chain for chain in seen["chains"] if not chain["complete"]]
    if incomplete:
        lines += ["", "chain   version  members (node:state)"]
    lines += (
        f"{c['id']:<7} {c['version']:<8} "
        + " ".join(f"{m['node']}:{m['state'].upper()}" for m in c["members"])
        for c in incomplete
    )
    return "\n".join(lines)


def _node(status: "NodeStatus") -> dict[str, Any]:
    from fs3.model.routing import NodeState

    return {
        "id": status.node.id,
        "state": NodeState(status.node.state).name.lower(),
        "host": status.node.host,
        "port": status.node.port,
        "control_port": status.control_port,
        "domain": status.node.domain,
        "weight": status.node.weight,
        "routing_applied": status.routing_applied,
        "targets": len(status.targets),
        # Targets of a node share its disks: what is free is free once.
        "capacity_bytes": max((t.capacity_bytes for t in status.targets), default=0),
        "used_bytes": sum(t.used_bytes for t in status.targets),
        "free_bytes": max((t.free_bytes for t in status.targets), default=0),
    }


def _chain(chain: "Chain") -> dict[str, Any]:
    from fs3.ids import TargetId, node_of
    from fs3.model.routing import TargetState

    members = [
        {
            "target": member.target,
            "node": node_of(TargetId(member.target)),
            "state": TargetState(member.state).name.lower(),
        }
        for member in chain.members
    ]
    return {
        "id": chain.id,
        "version": chain.version,
        "complete": all(m["state"] == "serving" for m in members),
        "members": members,
    }
