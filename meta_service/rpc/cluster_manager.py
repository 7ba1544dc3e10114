"""The `ClusterManager` service: what nodes and clients say, and what is pushed to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from typing_extensions import override

import fs3
from fs3.errors import Fs3Error, InvalidArgument, VersionMismatch
from fs3.ids import UNKNOWN_CLUSTER, Incarnation, NodeId
from fs3.model.routing import Routing
from fs3.runtime import control
from fs3.wire import routing as codec
from fs3.wire.proto import manager_pb2, manager_pb2_grpc, routing_pb2
from meta_service.core import events
from meta_service.core.clients import Client
from meta_service.core.events import Answer
from meta_service.loop import ManagerLoop
from meta_service.rpc import convert

Context = grpc.aio.ServicerContext[Any, Any]
IDENTITY_BYTES = 16


class ClusterManagerService(manager_pb2_grpc.ClusterManagerServicer):
    """Args:
    loop: the manager; every method runs on its event loop.
    """

    def __init__(self, loop: ManagerLoop) -> None:
        self._loop = loop

    @override
    async def GetCluster(
        self, request: manager_pb2.GetClusterRequest, context: Context
    ) -> manager_pb2.Cluster:
        return cluster_message(self._loop)

    @override
    async def AllocateNode(
        self, request: manager_pb2.AllocateNodeRequest, context: Context
    ) -> manager_pb2.AllocateNodeReply:
        await self._check_cluster(request.cluster_id, context)
        if len(request.identity) != IDENTITY_BYTES:
            await abort(context, InvalidArgument("an identity has 16 bytes"))
        answer = await self._ask(
            lambda token: events.NodeIdAsked(token, request.identity, NodeId(request.wanted)),
            context,
        )
        assert answer.node is not None
        return manager_pb2.AllocateNodeReply(
            node_id=answer.node, cluster_id=self._loop.machine.cluster.cluster_id
        )

    @override
    async def RegisterNode(
        self, request: manager_pb2.NodeRegistration, context: Context
    ) -> manager_pb2.NodeRegistered:
        await self._check_cluster(request.cluster_id, context)
        try:
            record = convert.node_record(request)
        except ValueError as error:
            await abort(context, InvalidArgument(f"registration refused: {error}"))
            raise
        await self._ask(lambda token: events.NodeAnnounced(token, record), context)
        return manager_pb2.NodeRegistered(
            epoch=self._loop.epoch,
            heartbeat_period_s=self._loop.config.membership.heartbeat_period_s,
        )

    @override
    async def Heartbeat(  # type: ignore[override]
        self, requests: AsyncIterator[manager_pb2.NodeHeartbeat], context: Context
    ) -> None:
        commands: asyncio.Queue[manager_pb2.NodeCommand] = asyncio.Queue()
        sender = asyncio.create_task(_send(commands, context))
        last: manager_pb2.NodeHeartbeat | None = None
        try:
            async for message in requests:
                last = message
                self._loop.attach(NodeId(message.node_id), commands)
                self._take(message)
        finally:
            sender.cancel()
            if last is not None:
                self._loop.detach(NodeId(last.node_id), commands, Incarnation(last.incarnation))

    @override
    async def WatchRouting(
        self, request: manager_pb2.WatchRoutingRequest, context: Context
    ) -> AsyncIterator[routing_pb2.RoutingUpdate]:
        await self._check_cluster(request.cluster_id, context)
        sent = Routing(self._loop.machine.cluster.cluster_id, 0, 0)
        while True:
            news, routing = self._loop.news, self._loop.machine.published
            if routing is not sent:
                yield codec.difference(sent, routing)
                sent = routing
            else:
                await news.wait()

    @override
    async def ExtendClient(
        self, request: manager_pb2.ClientSession, context: Context
    ) -> manager_pb2.ClientExtended:
        await self._check_cluster(request.cluster_id, context)
        client = Client(request.host, request.pid, request.description, self._loop.now())
        self._loop.clients.extend(Incarnation(request.incarnation), client)
        return manager_pb2.ClientExtended(expires_after_s=self._loop.config.client_expires_s)

    @override
    async def ReportEvidence(
        self, request: manager_pb2.Evidence, context: Context
    ) -> manager_pb2.EvidenceTaken:
        self._loop.happened(convert.accused(request))
        return manager_pb2.EvidenceTaken()

    def _take(self, message: manager_pb2.NodeHeartbeat) -> None:
        self._loop.happened(convert.heartbeat(message))
        for evidence in message.evidence:
            self._loop.happened(convert.accused(evidence))
        for result in message.probes:
            with contextlib.suppress(ValueError):  # an outcome of a newer version proves nothing
                self._loop.happened(convert.probed(result, by=NodeId(message.node_id)))

    async def _ask(self, make: events.Asking, context: Context) -> Answer:
        answer = await self._loop.ask(make)
        if answer.error is not None:
            await abort(context, answer.error)
        return answer

    async def _check_cluster(self, cluster_id: bytes, context: Context) -> None:
        own = self._loop.machine.cluster.cluster_id
        if cluster_id not in (b"", UNKNOWN_CLUSTER, own):
            await abort(
                context,
                VersionMismatch(
                    f"this is cluster {own.hex()}, not {cluster_id.hex()}: the URL or the "
                    "directory belongs to another cluster"
                ),
            )


def cluster_message(loop: ManagerLoop) -> manager_pb2.Cluster:
    cluster = loop.machine.cluster
    return manager_pb2.Cluster(
        cluster_id=cluster.cluster_id,
        epoch=loop.epoch,
        software=fs3.__version__,
        feature_level=cluster.feature_level,
    )


async def abort(context: Context, error: Fs3Error) -> None:
    """Ends the call with the typed error; does not return."""
    status, details, trailing = control.status_of(error)
    await context.abort(status, details, trailing)


async def _send(commands: asyncio.Queue[manager_pb2.NodeCommand], context: Context) -> None:
    while True:
        await context.write(await commands.get())
