"""The `Admin` service: what an operator asks."""

import msgspec
from typing_extensions import override

from fs3.wire import routing as codec
from fs3.wire.proto import admin_pb2, admin_pb2_grpc, manager_pb2
from meta_service.core import health
from meta_service.core.events import TargetStatus
from meta_service.loop import ManagerLoop
from meta_service.rpc import convert
from meta_service.rpc.cluster_manager import Context, cluster_message


class AdminService(admin_pb2_grpc.AdminServicer):
    """Args:
    loop: the manager; every method runs on its event loop.
    """

    def __init__(self, loop: ManagerLoop) -> None:
        self._loop = loop

    @override
    async def GetStatus(
        self, request: admin_pb2.GetStatusRequest, context: Context
    ) -> admin_pb2.ClusterStatus:
        machine, now = self._loop.machine, self._loop.now()
        routing = machine.published
        return admin_pb2.ClusterStatus(
            cluster=cluster_message(self._loop),
            routing_version=routing.version,
            nodes=[
                admin_pb2.NodeStatus(
                    node=codec.encode_node(node),
                    silent_s=min(machine.membership.silence(node.id, now), 1e9),
                    routing_applied=machine.has_applied(node.id),
                    control_port=machine.nodes[node.id].control_port,
                    targets=convert.target_statuses(
                        machine.statuses.get(target.id, TargetStatus(target.id))
                        for target in machine.nodes[node.id].targets
                    ),
                )
                for node in routing.nodes
            ],
            chains=map(codec.encode_chain, routing.chains),
            tables=map(codec.encode_table, routing.tables),
            progress=[
                manager_pb2.SyncProgress(
                    chain=p.chain,
                    target=p.target,
                    done_chunks=p.done_chunks,
                    total_chunks=p.total_chunks,
                )
                for p in machine.progress.values()
            ],
            clients=len(self._loop.clients),
            healthy=health.is_healthy(machine, now),
            writable=health.is_writable(machine),
        )

    @override
    async def GetHealth(
        self, request: admin_pb2.GetHealthRequest, context: Context
    ) -> admin_pb2.Health:
        findings = health.examine(self._loop.machine, self._loop.now())
        return admin_pb2.Health(
            healthy=not any(finding.is_error for finding in findings),
            findings=[
                admin_pb2.Finding(
                    severity="error" if finding.is_error else "warning",
                    what=finding.what,
                    cause=finding.cause,
                    consequence=finding.consequence,
                    next=finding.next,
                )
                for finding in findings
            ],
        )

    @override
    async def GetConfig(
        self, request: admin_pb2.GetConfigRequest, context: Context
    ) -> admin_pb2.Config:
        return admin_pb2.Config(json=msgspec.json.encode(self._loop.config).decode())
