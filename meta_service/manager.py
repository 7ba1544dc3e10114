"""The cluster manager: an event loop in a thread of its own, with the gRPC services on it.

It starts in three steps, because the metadata service that runs beside it needs the routing, and
the routing names the port of the metadata service: construct (reads the store, takes the epoch),
start the metadata service, `start(metadata_port)`.
"""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import grpc

from fs3.config.cluster import Endpoint
from fs3.config.manager import ManagerConfig
from fs3.errors import Busy
from fs3.ids import Incarnation, NodeId, new_cluster_id
from fs3.model.routing import NodeKind, Routing
from fs3.runtime import control
from fs3.runtime.host import boot_id, wall_clock_ns
from fs3.wire.cluster_records import NodeRecord
from fs3.wire.follow import Follow, Followed
from fs3.wire.proto import admin_pb2_grpc, manager_pb2_grpc
from meta_service.cluster_store import ClusterStore
from meta_service.core import events
from meta_service.core.clients import Client
from meta_service.core.events import Answer, TargetStatus
from meta_service.kv.transaction import Engine
from meta_service.loop import ManagerLoop
from meta_service.rpc.admin import AdminService
from meta_service.rpc.cluster_manager import ClusterManagerService

log = logging.getLogger(__name__)

T = TypeVar("T")

STOP_GRACE_S: Final = 0.2
METADATA_NODE: Final = NodeId(1_000_000)
"""Wanted by the metadata server of this process; smaller ids are left to storage nodes."""
CALLS_MAX: Final = 20_000
"""Streams and calls at the same time; each node has two streams, each client one."""


class Manager:
    """The primary cluster manager. Methods are safe to call from any thread.

    Args:
        engine: the metadata store.
        config: settings.
        incarnation: of this process.
        on_failure: called when the manager cannot go on; the process has to end.

    Raises:
        Corrupt: the store cannot be read.
    """

    def __init__(
        self,
        engine: Engine,
        config: ManagerConfig,
        incarnation: Incarnation,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._incarnation = incarnation
        self._endpoint = Endpoint(config.host, config.port)
        store = ClusterStore(engine, incarnation)
        stored = store.open(str(self._endpoint), new_cluster_id, wall_clock_ns())
        self._asyncio = asyncio.new_event_loop()
        self._loop = ManagerLoop(config, store, stored, on_failure)
        self._thread = threading.Thread(
            target=self._asyncio.run_forever, name="fs3-manager", daemon=True
        )
        self._server: grpc.aio.Server | None = None
        self.cluster_id = stored.cluster.cluster_id
        self.port = config.port

    def routing(self) -> Routing:
        """The newest published routing."""
        return self._loop.machine.published

    def target_statuses(self) -> tuple[TargetStatus, ...]:
        """Space of every target as last reported."""
        return tuple(self._loop.machine.statuses.copy().values())

    def is_client_dead(self, incarnation: Incarnation) -> bool:
        """The client process has certainly not lived for the expiry of its session."""
        return self._loop.clients.is_dead(incarnation, self._loop.now())

    def follow(self, request: Follow) -> Followed:
        """Answers a client that follows the routing over fs3rpc; it is alive, too."""
        client = Client(request.host, request.pid, request.description, self._loop.now())
        incarnation = Incarnation(request.client)
        self._asyncio.call_soon_threadsafe(self._loop.clients.extend, incarnation, client)
        newest = self.routing()
        is_newest = (request.epoch, request.version) >= (newest.epoch, newest.version)
        return Followed(None if is_newest else newest)

    def start(self, metadata_port: int) -> None:
        """Announces the metadata server of this process and opens the gRPC port.

        Raises:
            Busy: the port is in use.
        """
        self._thread.start()
        self._run(self._start(metadata_port))
        log.info("cluster %s answers at fs3://%s", self.cluster_id.hex(), self._endpoint)

    def stop(self) -> None:
        """Ends all streams and the thread; idempotent."""
        if self._thread.is_alive():
            self._run(self._stop())
            self._asyncio.call_soon_threadsafe(self._asyncio.stop)
            self._thread.join()
            self._asyncio.close()

    async def _start(self, metadata_port: int) -> None:
        self._loop.start()
        await self._announce(metadata_port)
        server = grpc.aio.server(options=control.SERVER_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        manager_pb2_grpc.add_ClusterManagerServicer_to_server(
            ClusterManagerService(self._loop), server
        )
        admin_pb2_grpc.add_AdminServicer_to_server(AdminService(self._loop), server)
        try:
            server.add_insecure_port(str(self._endpoint))
        except RuntimeError:
            raise Busy(
                f"port {self._endpoint.port} on {self._endpoint.host} is in use; stop what "
                "listens there, or choose another port",
                errno=errno.EADDRINUSE,
            ) from None
        await server.start()
        self._server = server

    async def _announce(self, metadata_port: int) -> None:
        """The metadata server's identity is the cluster's: there is one per store."""
        asked = await self._loop.ask(
            lambda t: events.NodeIdAsked(t, self.cluster_id, METADATA_NODE)
        )
        assert asked.node is not None
        record = NodeRecord(
            id=asked.node,
            kind=NodeKind.META,
            identity=self.cluster_id,
            incarnation=self._incarnation,
            boot_id=boot_id(),
            host=self._config.host,
            port=metadata_port,
        )
        answer: Answer = await self._loop.ask(
            lambda t: events.NodeAnnounced(t, record, is_local=True)
        )
        assert answer.error is None, answer.error

    async def _stop(self) -> None:
        self._loop.is_stopping = True
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
        await self._loop.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._asyncio).result()
