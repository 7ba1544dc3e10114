"""A node's reports and registration as protobuf messages."""

from collections.abc import Iterable
from typing import Final

from fs3.ids import Incarnation, NodeId
from fs3.wire.liveness import Outcome
from fs3.wire.proto import manager_pb2
from storage_node.core.report import Accusation, Report, Status

_OUTCOMES: Final = {
    Outcome.REFUSED: manager_pb2.REFUSED,
    Outcome.ANSWERED: manager_pb2.ANSWERED,
    Outcome.SILENT: manager_pb2.SILENT,
}


def heartbeat(node: NodeId, incarnation: Incarnation, report: Report) -> manager_pb2.NodeHeartbeat:
    return manager_pb2.NodeHeartbeat(
        node_id=node,
        incarnation=incarnation,
        routing_epoch=report.applied[0],
        routing_version=report.applied[1],
        targets=target_statuses(report.statuses),
        finished=[
            manager_pb2.SyncFinished(chain=f.chain, chain_version=f.version, target=f.target)
            for f in report.finished
        ],
        progress=[
            manager_pb2.SyncProgress(
                chain=p.chain, target=p.target, done_chunks=p.done, total_chunks=p.total
            )
            for p in report.progress
        ],
        evidence=map(_evidence, report.accusations),
        probes=[
            manager_pb2.ProbeResult(
                node_id=p.node,
                incarnation=p.incarnation,
                outcome=_OUTCOMES[p.outcome],
                answered=p.answered,
            )
            for p in report.probes
        ],
    )


def target_statuses(statuses: Iterable[Status]) -> list[manager_pb2.TargetStatus]:
    return [
        manager_pb2.TargetStatus(
            id=status.target,
            failed=status.failed,
            cause=status.cause,
            capacity_bytes=status.capacity_bytes,
            used_bytes=status.used_bytes,
            free_bytes=status.free_bytes,
            chunks=status.chunks,
        )
        for status in statuses
    ]


def _evidence(accusation: Accusation) -> manager_pb2.Evidence:
    return manager_pb2.Evidence(
        node_id=accusation.node,
        incarnation=accusation.incarnation,
        kind=manager_pb2.CONNECTION_REFUSED
        if accusation.is_refused
        else manager_pb2.CONNECTION_RESET,
    )
