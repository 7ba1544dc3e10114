"""Keeps the newest routing of a cluster: one stream from the manager, read by one thread.

Used by storage nodes and by clients. Routing only moves forward: an update with an older epoch, as
a deposed manager would send, is dropped. While the manager is away the last routing stays in use;
the watcher reconnects with a growing pause and starts over from a snapshot.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

import grpc

from fs3.config.cluster import Endpoint, parse_url
from fs3.errors import Fs3Error, StaleRouting, Unavailable
from fs3.ids import UNKNOWN_CLUSTER, ClusterId
from fs3.model.routing import Routing
from fs3.runtime import control
from fs3.runtime.endpoints import metadata_endpoints
from fs3.wire import routing as codec
from fs3.wire.proto import manager_pb2, manager_pb2_grpc, routing_pb2

log = logging.getLogger(__name__)

Subscriber = Callable[[Routing], None]

_PAUSE_MIN_S: Final = 0.02
_PAUSE_MAX_S: Final = 1.0


class RoutingWatcher:
    """The newest routing of the cluster at `url`, from `start` to `close`. Thread-safe.

    Args:
        url: `fs3://host:port` of the cluster manager.
        cluster_id: refuse any other cluster; by default whichever answers is taken.

    Raises:
        InvalidArgument: `url` is not a cluster URL.
    """

    def __init__(self, url: str, *, cluster_id: ClusterId = UNKNOWN_CLUSTER) -> None:
        self.endpoint: Endpoint = parse_url(url)
        self.channel: grpc.Channel = control.open_channel(self.endpoint)
        self._request = manager_pb2.WatchRoutingRequest(cluster_id=cluster_id)
        self._stub = manager_pb2_grpc.ClusterManagerStub(self.channel)
        self._changed = threading.Condition()
        self._routing: Routing | None = None
        self._failure: Fs3Error | None = None
        self._subscribers: list[Subscriber] = []
        self._stopping = threading.Event()
        self._cancel: Callable[[], object] = _nothing
        self._thread = threading.Thread(target=self._run, name="fs3-routing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls `subscriber` with every new routing, in the watcher's thread, at once.

        The routing known now, if any, is delivered before this returns, in the caller's thread; a
        newer one may arrive meanwhile, so subscribers compare versions.
        """
        with self._changed:
            self._subscribers.append(subscriber)
            routing = self._routing
        if routing is not None:
            subscriber(routing)

    def wait_ready(self, timeout_s: float) -> Routing:
        """The routing, once it names a chain table and a living metadata server.

        Raises:
            Unavailable: no manager answers at the URL, or its cluster is not complete in time.
            VersionMismatch: another cluster answers there.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_ready() or self._is_hopeless(), timeout=timeout_s
            )
            if self._is_ready():
                assert self._routing is not None
                return self._routing
            if self._routing is None:
                raise self._failure or Unavailable(
                    f"no cluster manager answered at fs3://{self.endpoint} within {timeout_s:g} s; "
                    "check the URL, or start the cluster with `fs3 up`"
                )
        raise Unavailable(
            f"the cluster at fs3://{self.endpoint} is not complete yet; `fs3 health` says what is "
            "missing"
        )

    def routing(self) -> Routing:
        """The newest routing.

        Raises:
            Unavailable: none has arrived yet.
        """
        routing = self._routing
        if routing is None:
            raise Unavailable(f"no routing from fs3://{self.endpoint} yet; wait_ready() waits")
        return routing

    def meta_endpoints(self) -> tuple[Endpoint, ...]:
        """Where living metadata servers answer, in id order."""
        return metadata_endpoints(self.routing())

    def close(self) -> None:
        """Ends the stream and the thread; idempotent."""
        self._stopping.set()
        self._cancel()
        self.channel.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _is_ready(self) -> bool:
        routing = self._routing
        return routing is not None and bool(routing.tables) and bool(metadata_endpoints(routing))

    def _is_hopeless(self) -> bool:
        return (
            self._routing is None
            and isinstance(self._failure, Fs3Error)
            and (not isinstance(self._failure, ConnectionError))
        )

    def _run(self) -> None:
        pause_s = _PAUSE_MIN_S
        while not self._stopping.is_set():
            try:
                self._watch()
                pause_s = _PAUSE_MIN_S
            except StaleRouting:
                pause_s = _PAUSE_MIN_S
            except grpc.RpcError as failure:
                self._fail(control.error_of(failure, self.endpoint))
            except ValueError:  # the channel was closed
                return
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _watch(self) -> None:
        stream = self._stub.WatchRouting(self._request, wait_for_ready=False)
        self._cancel = stream.cancel
        if self._stopping.is_set():
            return
        routing: Routing | None = None
        for update in stream:
            routing = codec.apply(routing, update)
            self._take(routing, update)

    def _take(self, routing: Routing, update: routing_pb2.RoutingUpdate) -> None:
        with self._changed:
            known = self._routing
            if known is not None and (routing.epoch, routing.version) <= (
                known.epoch,
                known.version,
            ):
                return
            self._routing, self._failure = routing, None
            self._request = manager_pb2.WatchRoutingRequest(cluster_id=routing.cluster_id)
            subscribers = tuple(self._subscribers)
            self._changed.notify_all()
        log.debug("routing %d.%d from %d", update.epoch, update.version, update.base)
        for subscriber in subscribers:
            try:
                subscriber(routing)
            except Exception:
                log.exception("a subscriber failed on routing %d", routing.version)

    def _fail(self, error: Fs3Error) -> None:
        with self._changed:
            if self._routing is not None and self._failure is None and not self._stopping.is_set():
                log.warning("lost the cluster manager, last routing stays in use: %s", error)
            self._failure = error
            self._changed.notify_all()


def _nothing() -> None:
    """There is no stream to cancel yet."""
