"""Protobuf messages <-> the events and records of the machine."""

from collections.abc import Iterable

from fs3.ids import ChainId, ChainVersion, Incarnation, NodeId, TargetId
from fs3.model.routing import NodeKind, NodeState
from fs3.wire.cluster_records import NodeRecord, TargetRecord
from fs3.wire.liveness import Outcome
from fs3.wire.proto import manager_pb2
from meta_service.core import events
from meta_service.core.membership import Verdict


def node_record(message: manager_pb2.NodeRegistration) -> NodeRecord:
    """Raises ValueError for a kind this version does not know."""
    return NodeRecord(
        id=NodeId(message.node_id),
        kind=NodeKind(message.kind),
        identity=message.identity,
        incarnation=Incarnation(message.incarnation),
        boot_id=message.boot_id,
        state=NodeState.ALIVE,
        host=message.host,
        port=message.port,
        liveness_port=message.liveness_port,
        domain=message.domain,
        weight=message.weight,
        control_port=message.control_port,
        targets=tuple(TargetRecord(TargetId(t.id), t.generation, t.port) for t in message.targets),
    )


def heartbeat(message: manager_pb2.NodeHeartbeat) -> events.HeartbeatReceived:
    return events.HeartbeatReceived(
        node=NodeId(message.node_id),
        incarnation=Incarnation(message.incarnation),
        applied=(message.routing_epoch, message.routing_version),
        targets=tuple(map(_status, message.targets)),
        finished=tuple(
            events.SyncFinished(ChainId(f.chain), ChainVersion(f.chain_version), TargetId(f.target))
            for f in message.finished
        ),
        progress=tuple(
            events.SyncProgress(ChainId(p.chain), TargetId(p.target), p.done_chunks, p.total_chunks)
            for p in message.progress
        ),
    )


def accused(message: manager_pb2.Evidence) -> events.NodeAccused:
    return events.NodeAccused(NodeId(message.node_id), Incarnation(message.incarnation))


def probed(message: manager_pb2.ProbeResult, by: NodeId) -> events.LivenessProbed:
    """Raises ValueError for an outcome this version does not know."""
    return events.LivenessProbed(
        node=NodeId(message.node_id),
        incarnation=Incarnation(message.incarnation),
        outcome=Outcome(message.outcome),
        answered=Incarnation(message.answered),
        by=by,
    )


def command(verdict: Verdict) -> manager_pb2.NodeCommand:
    return manager_pb2.NodeCommand(
        register_again=verdict is Verdict.UNREGISTERED, start_over=verdict is Verdict.EXCLUDED
    )


def probe_command(effect: events.ProbeLiveness) -> manager_pb2.NodeCommand:
    probe = manager_pb2.Probe(
        node_id=effect.node,
        incarnation=effect.incarnation,
        host=effect.host,
        port=effect.port,
    )
    return manager_pb2.NodeCommand(probes=[probe])


def target_statuses(
    statuses: Iterable[events.TargetStatus],
) -> list[manager_pb2.TargetStatus]:
    return [
        manager_pb2.TargetStatus(
            id=status.id,
            failed=status.failed,
            cause=status.cause,
            capacity_bytes=status.capacity_bytes,
            used_bytes=status.used_bytes,
            free_bytes=status.free_bytes,
            chunks=status.chunks,
        )
        for status in statuses
    ]


def _status(message: manager_pb2.TargetStatus) -> events.TargetStatus:
    return events.TargetStatus(
        id=TargetId(message.id),
        failed=message.failed,
        cause=message.cause,
        capacity_bytes=message.capacity_bytes,
        used_bytes=message.used_bytes,
        free_bytes=message.free_bytes,
        chunks=message.chunks,
    )
