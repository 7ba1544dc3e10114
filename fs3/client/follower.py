"""The link to the cluster of a forked child: as `ManagerLink`, without gRPC.

gRPC's core does not survive a fork: a child that opens a channel aborts now and then, depending on
what the parent's threads did at that moment. A DataLoader forks its workers from a process that is
connected, so a child goes on from the routing of its parent and follows it over fs3rpc.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from fs3._native import NativeError, RpcChannel
from fs3.config.cluster import Endpoint
from fs3.ids import Incarnation
from fs3.model.routing import Routing
from fs3.runtime.endpoints import metadata_endpoints
from fs3.wire.follow import FOLLOW, Follow, Followed

log = logging.getLogger(__name__)

_PERIOD_S: Final = 0.1
_CALL_TIMEOUT_S: Final = 2.0
_decode: Final = msgspec.msgpack.Decoder(Followed).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class RoutingFollower:
    """Args:
    routing: of the parent.
    incarnation: of this process, as in its metadata and chunk requests.
    description: what the client is, for people who list clients.
    """

    def __init__(self, routing: Routing, incarnation: Incarnation, *, description: str) -> None:
        self._routing = routing
        self._incarnation = incarnation
        self._description = description
        self._subscribers: list[Callable[[Routing], None]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fs3-follow", daemon=True)

    def start(self, timeout_s: float) -> Routing:  # noqa: ARG002
        """The routing is there at once."""
        self._thread.start()
        return self._routing

    def routing(self) -> Routing:
        return self._routing

    def meta_endpoints(self) -> tuple[Endpoint, ...]:
        return metadata_endpoints(self._routing)

    def subscribe(self, subscriber: Callable[[Routing], None]) -> None:
        """Calls `subscriber` with the routing now and with every newer one."""
        self._subscribers.append(subscriber)
        subscriber(self._routing)

    def close(self) -> None:
        """Ends the thread; idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            for endpoint in self.meta_endpoints():
                if self._follow(endpoint):
                    break

    def _follow(self, endpoint: Endpoint) -> bool:
        """Follows one metadata server until it fails; whether it has answered at all."""
        try:
            channel = RpcChannel(
                endpoint.host,
                endpoint.port,
                cluster_id=self._routing.cluster_id,
                incarnation=self._incarnation,
                connect_timeout_s=_CALL_TIMEOUT_S,
            )
        except NativeError as failure:
            log.debug("no routing from %s: %s", endpoint, failure)
            return False
        try:
            answers = 0
            while self._ask(channel):
                answers += 1
                if self._stopping.wait(_PERIOD_S):
                    break
            return answers > 0
        finally:
            channel.close()

    def _ask(self, channel: RpcChannel) -> bool:
        known = self._routing
        request = Follow(
            client=self._incarnation,
            host=os.uname().nodename,
            pid=os.getpid(),
            description=self._description,
            epoch=known.epoch,
            version=known.version,
        )
        status, body = channel.call(FOLLOW, _encode(request), _CALL_TIMEOUT_S)
        if status != 0 or isinstance(body, str):
            return False
        newest = _decode(body).routing
        if newest is not None and (newest.epoch, newest.version) > (known.epoch, known.version):
            self._routing = newest
            for subscriber in tuple(self._subscribers):
                subscriber(newest)
        return True
