"""The `StorageControl` service of one node: what an operator asks it directly."""

import errno
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc
from typing_extensions import override

from fs3.config.cluster import Endpoint
from fs3.errors import Busy
from fs3.runtime import control
from fs3.wire.proto import storage_pb2, storage_pb2_grpc
from storage_node import messages
from storage_node.service import StorageNode

_THREADS: Final = 2


class StorageControlService(storage_pb2_grpc.StorageControlServicer):
    """Args:
    node: the node of this process.
    """

    def __init__(self, node: StorageNode) -> None:
        self._node = node

    @override
    def ListTargets(
        self, request: storage_pb2.ListTargetsRequest, context: grpc.ServicerContext
    ) -> storage_pb2.TargetList:
        return storage_pb2.TargetList(
            targets=self._node.targets(),
            status=messages.target_statuses(self._node.statuses()),
        )

    @override
    def GetCounters(
        self, request: storage_pb2.GetCountersRequest, context: grpc.ServicerContext
    ) -> storage_pb2.Counters:
        return storage_pb2.Counters(values=self._node.server.counters())


def serve(node: StorageNode, host: str, port: int) -> tuple[grpc.Server, int]:
    """Starts the service; (server, its port). `port` 0 takes any free one.

    Raises:
        Busy: the port is in use.
    """
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=control.SERVER_OPTIONS)
    storage_pb2_grpc.add_StorageControlServicer_to_server(StorageControlService(node), server)
    try:
        bound = server.add_insecure_port(str(Endpoint(host, port)))
    except RuntimeError:
        raise Busy(
            f"port {port} on {host} is in use; stop what listens there, or choose another "
            "control_port",
            errno=errno.EADDRINUSE,
        ) from None
    server.start()
    return server, bound
