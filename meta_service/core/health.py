"""What is wrong with a cluster, in words: what, why, what it means, what to do next.

An error means that data is at risk or cannot be reached, a warning that something deserves a look.
Every state that a chain or a node can be in without being well has a finding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fs3.ids import NodeId, node_of
from fs3.model.routing import TargetState
from fs3.units import format_bytes
from fs3.wire.cluster_records import ChainRecord, NodeRecord
from meta_service.core.cluster import ClusterMachine
from meta_service.core.events import TargetStatus
from meta_service.core.membership import Standing

SERVING, SYNCING, WAITING, LAST, OFFLINE = TargetState

FULL_WARNING: Final = 0.05
"""Share of free space below which a target is reported."""


@dataclass(frozen=True, slots=True)
class Finding:
    is_error: bool
    what: str
    cause: str
    consequence: str
    next: str


def examine(machine: ClusterMachine, now: float) -> list[Finding]:
    """All findings, errors first."""
    found = [
        *_formation(machine),
        *_silence(machine, now),
        *(finding for node in machine.storage() for finding in _node(machine, node, now)),
        *(finding for chain in machine.chains.values() for finding in _chain(machine, chain)),
        *(finding for status in machine.statuses.values() for finding in _target(status)),
        _METADATA_COPY,
    ]
    return sorted(found, key=lambda finding: not finding.is_error)


def is_healthy(machine: ClusterMachine, now: float) -> bool:
    return not any(finding.is_error for finding in examine(machine, now))


def is_writable(machine: ClusterMachine) -> bool:
    """Every chain serves, and every node that serves in one knows the newest routing."""
    if not machine.tables:
        return False
    serving: set[NodeId] = set()
    for chain in machine.chains.values():
        nodes = {node_of(m.target) for m in chain.members if m.state is SERVING}
        if not nodes:
            return False
        serving |= nodes
    return all(machine.has_applied(node) for node in serving)


_METADATA_COPY: Final = Finding(
    is_error=False,
    what="metadata has one copy",
    cause="the embedded metadata store keeps it in one directory",
    consequence="it survives crashes of every process, but not the loss of that disk",
    next="back up the metadata directory",
)


def _formation(machine: ClusterMachine) -> Iterator[Finding]:
    if machine.tables:
        return
    wanted = machine.config.formation.nodes
    alive = len(machine.alive_storage())
    yield Finding(
        is_error=True,
        what="the cluster has no chains yet",
        cause=str(machine.obstacle or f"{alive} of {wanted} storage nodes have registered"),
        consequence="nothing can be stored",
        next="change the configuration as said and restart the manager"
        if machine.obstacle
        else "start the missing storage nodes; their logs say why they do not register",
    )


def _silence(machine: ClusterMachine, now: float) -> Iterator[Finding]:
    if machine.membership.is_mass_silence(now):
        yield Finding(
            is_error=True,
            what="more than half of the storage nodes fell silent at once",
            cause="the manager's own network, or a power or network failure of many nodes",
            consequence="they are not declared dead yet, so their chains do not change",
            next="check the network of the manager's host, then that of the nodes",
        )


def _node(machine: ClusterMachine, node: NodeRecord, now: float) -> Iterator[Finding]:
    where = f"storage node {node.id} at {node.host}:{node.port}"
    standing = machine.standing(node.id)
    if standing in (Standing.DEAD, Standing.GONE):
        members = [
            m
            for chain in machine.chains.values()
            for m in chain.members
            if node_of(m.target) == node.id
        ]
        yield Finding(
            is_error=True,
            what=f"{where} is dead",
            cause="its process is gone"
            if standing is Standing.GONE
            else f"it has been silent for {_age(machine.membership.silence(node.id, now))}",
            consequence=f"{len(members)} chains have one replica less",
            next="start it again (`fs3 up` on a local cluster); its log says why it ended",
        )
    elif standing is Standing.ALIVE and machine.tables and not machine.has_applied(node.id):
        yield Finding(
            is_error=False,
            what=f"{where} does not serve by the newest routing",
            cause="the routing was pushed to it and it has not confirmed",
            consequence="requests to it are refused and retried",
            next="wait a second; if it stays, look at its log",
        )


def _chain(machine: ClusterMachine, chain: ChainRecord) -> Iterator[Finding]:
    states = {m.target: m.state for m in chain.members}
    short = [m for m in chain.members if m.state is not SERVING]
    if not short:
        return
    if SERVING not in states.values():
        missing = sorted({node_of(entry.target) for entry in chain.last_serving})
        yield Finding(
            is_error=True,
            what=f"chain {chain.id} has no serving member",
            cause="the members that hold its data are not back: storage nodes "
            + ", ".join(map(str, missing)),
            consequence="files with chunks on it can be neither read nor written",
            next=f"start storage nodes {', '.join(map(str, missing))} on their old directories",
        )
        return
    copying = next((m for m in chain.members if m.state is SYNCING), None)
    if copying is not None:
        yield _copying(machine, chain, node_of(copying.target))
    for member in short:
        if member.state is WAITING and copying is None:
            yield Finding(
                is_error=True,
                what=f"chain {chain.id} does not copy to its member on node "
                f"{node_of(member.target)}",
                cause="the member is up but was not started yet",
                consequence=f"the chain has {len(states) - len(short)} of {len(states)} replicas",
                next="look at the log of the chain's serving nodes",
            )


def _copying(machine: ClusterMachine, chain: ChainRecord, node: NodeId) -> Finding:
    progress = machine.progress.get(chain.id)
    done = f", {progress.done_chunks} of {progress.total_chunks} chunks" if progress else ""
    return Finding(
        is_error=False,
        what=f"chain {chain.id} is copied to node {node}{done}",
        cause="its member there returned or is new",
        consequence="the chain has a replica less until the copy ends",
        next="wait; it serves by itself when the copy is complete",
    )


def _target(status: TargetStatus) -> Iterator[Finding]:
    node = node_of(status.id)
    if status.failed:
        yield Finding(
            is_error=True,
            what=f"target {status.id:#x} on storage node {node} failed",
            cause=status.cause,
            consequence="its chain has one replica less; the node's other targets serve on",
            next="replace the disk and restart the node; an empty disk is filled by itself",
        )
    elif status.capacity_bytes and status.free_bytes < FULL_WARNING * status.capacity_bytes:
        yield Finding(
            is_error=False,
            what=f"target {status.id:#x} on storage node {node} is nearly full",
            cause=f"{format_bytes(status.free_bytes)} of {format_bytes(status.capacity_bytes)} "
            "are free",
            consequence="writes to its chain will be refused with `no space left`",
            next="remove files or add storage nodes",
        )


def _age(seconds: float) -> str:
    return "ever" if seconds == float("inf") else f"{seconds:.1f} s"
