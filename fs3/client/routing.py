"""A client's link to the cluster manager: the routing and its session.

The session tells the cluster that this client process lives, so that its open files are kept.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

import grpc

from fs3.config.cluster import Endpoint
from fs3.ids import UNKNOWN_CLUSTER, ClusterId, Incarnation
from fs3.model.routing import Routing
from fs3.runtime.routing import RoutingWatcher
from fs3.wire.proto import manager_pb2, manager_pb2_grpc

log = logging.getLogger(__name__)

_EXTEND_FIRST_S: Final = 1.0
_CALL_TIMEOUT_S: Final = 2.0


class ManagerLink:
    """The routing of a cluster, kept new, and this client's session in it. Thread-safe.

    Args:
        url: `fs3://host:port` of the cluster manager.
        incarnation: of this client process, as in its metadata and chunk requests.
        cluster_id: refuse any other cluster; by default whichever answers is taken.
        description: what the client is, for people who list clients.

    Raises:
        InvalidArgument: `url` is not a cluster URL.
    """

    def __init__(
        self,
        url: str,
        incarnation: Incarnation,
        *,
        cluster_id: ClusterId = UNKNOWN_CLUSTER,
        description: str = "",
    ) -> None:
        self._watcher = RoutingWatcher(url, cluster_id=cluster_id)
        self._stub = manager_pb2_grpc.ClusterManagerStub(self._watcher.channel)
        self._session = manager_pb2.ClientSession(
            incarnation=incarnation,
            host=os.uname().nodename,
            pid=os.getpid(),
            description=description,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._extend, name="fs3-session", daemon=True)

    def start(self, timeout_s: float) -> Routing:
        """Connects and returns the routing once the cluster can be used.

        Raises:
            Unavailable: no manager answers at the URL, or its cluster is not complete in time.
            VersionMismatch: another cluster answers there.
        """
        self._watcher.start()
        try:
            routing = self._watcher.wait_ready(timeout_s)
        except BaseException:
            self._watcher.close()
            raise
        self._session.cluster_id = routing.cluster_id
        self._thread.start()
        return routing

    def routing(self) -> Routing:
        return self._watcher.routing()

    def meta_endpoints(self) -> tuple[Endpoint, ...]:
        return self._watcher.meta_endpoints()

    def subscribe(self, subscriber: Callable[[Routing], None]) -> None:
        """As `RoutingWatcher.subscribe`."""
        self._watcher.subscribe(subscriber)

    def close(self) -> None:
        """Ends the session and the stream; idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._watcher.close()

    def _extend(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            try:
                answer = self._stub.ExtendClient(self._session, timeout=_CALL_TIMEOUT_S)
                pause_s = answer.expires_after_s / 4
            except grpc.RpcError as failure:
                log.debug("the client session was not extended: %s", failure)
                pause_s = _EXTEND_FIRST_S
