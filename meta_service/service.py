"""The metadata service: takes requests in batches from the native transport, answers in batches.

One thread runs all requests. A batch is one transaction and one write of the log; replies leave
only after it has committed, and those to `Sync` only after it is on media, for which a thread of
its own waits. Background jobs run in threads of their own and meet the batches in the engine.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Final

import msgspec

from fs3._native import IoClient, NativeError, RpcServer
from fs3.config.metadata import MetadataConfig
from fs3.errors import Fs3Error, Internal, InvalidArgument, VersionMismatch, from_number
from fs3.ids import ClusterId, Incarnation, NodeId
from fs3.model.routing import Routing
from fs3.runtime.host import wall_clock_ns
from fs3.units import NANOSECONDS_PER_SECOND
from fs3.wire import metadata as wire
from fs3.wire.follow import FOLLOW, Follow, Followed
from fs3.wire.frame import PeerKind
from fs3.wire.metadata import Caller
from meta_service.jobs.cuts import Cuts
from meta_service.jobs.garbage import Garbage
from meta_service.jobs.native_chunks import NativeChunks
from meta_service.jobs.replays import Replays
from meta_service.jobs.sessions import Sessions
from meta_service.jobs.worker import Worker
from meta_service.kv.transaction import Engine
from meta_service.media import Addressed, MediaReplies
from meta_service.namespace.batch import Call, error_reply, run_batch
from meta_service.namespace.counters import InodeNumbers
from meta_service.namespace.inputs import Inputs, Space, directory_layout
from meta_service.namespace.replay import Reply
from meta_service.namespace.root import create_root
from meta_service.statistics import Statistics

_log = logging.getLogger(__name__)

_POLL_S: Final = 1.0
_CUTS: Final = "fs3-cuts"
_DECODERS: Final = {
    method: msgspec.msgpack.Decoder(tuple[Caller, request])  # type: ignore[valid-type]
    for method, (request, _) in wire.METHODS.items()
}

_decode_follow: Final = msgspec.msgpack.Decoder(Follow).decode
_encode: Final = msgspec.msgpack.Encoder().encode

Request = tuple[int, int, int, bytes, int, int]
"""(connection, request id, method, body, peer kind, peer incarnation) from the transport."""


class MetadataService:
    """Args:
    engine: the store of the namespace.
    routing: the newest routing.
    config: settings.
    cluster_id, node, incarnation: what peers learn of this process.
    host, port: where to listen; port 0 takes a free one.
    space: what the cluster can store.
    is_client_dead: whether a client process is certainly gone.
    follow: answers clients that follow the routing.

    Attributes:
        statistics: counts and latencies by operation.
    """

    def __init__(
        self,
        engine: Engine,
        routing: Callable[[], Routing],
        config: MetadataConfig,
        *,
        cluster_id: ClusterId,
        node: NodeId,
        incarnation: Incarnation,
        host: str,
        port: int,
        space: Callable[[], Space],
        is_client_dead: Callable[[Incarnation], bool],
        follow: Callable[[Follow], Followed],
    ) -> None:
        self._follow: Final = follow
        self.statistics: Final = Statistics()
        self._engine: Final = engine
        self._routing: Final = routing
        self._config: Final = config
        self._space: Final = space
        self._dice: Final = SystemRandom()
        self._numbers: Final = InodeNumbers(engine)
        try:
            self._server: Final = RpcServer(
                host,
                port,
                cluster_id=cluster_id,
                node_id=node,
                incarnation=incarnation,
                kind=PeerKind.META,
            )
        except NativeError as error:
            raise from_number(error.code, error.message) from error
        self._io: Final = IoClient(cluster_id=cluster_id, incarnation=incarnation)
        self._workers: Final = self._jobs(is_client_dead)
        self._media: Final = MediaReplies(engine.sync, self._send)
        self._stopping = False
        self._thread: Final = threading.Thread(target=self._serve, name="fs3-metadata", daemon=True)

    def start(self) -> int:
        """Makes the root if there is none, begins to serve; the port."""
        layout = directory_layout(self._config.chunk_size_bytes, self._config.stripe)
        self._engine.transact(
            lambda t: create_root(t, self._inputs(), layout, self._config.root_mode)
        )
        self._media.start()
        self._thread.start()
        for worker in self._workers.values():
            worker.start()
        return self._server.port

    def stop(self) -> None:
        """Finishes the batch and the steps in progress; also right after construction."""
        self._stopping = True
        self._server.close()
        if self._thread.ident is not None:
            self._thread.join()
            self._media.stop()
        # First, so that no step waits for storage nodes that are being stopped as well.
        self._io.close()
        if self._thread.ident is not None:
            for worker in self._workers.values():
                worker.stop()

    def _jobs(self, is_client_dead: Callable[[Incarnation], bool]) -> dict[str, Worker]:
        config = self._config.jobs

        def chunks() -> NativeChunks:
            return NativeChunks(self._io, self._routing, config.chunk_timeout_s)

        sessions = Sessions(
            self._engine,
            chunks(),
            self._inputs,
            config,
            is_dead=lambda client: is_client_dead(Incarnation(client)),
            monotonic_s=time.monotonic,
        )
        steps: dict[str, Callable[[], float]] = {
            "fs3-garbage": Garbage(self._engine, chunks(), self._inputs, config).step,
            _CUTS: Cuts(self._engine, chunks(), self._inputs, config).step,
            "fs3-sessions": sessions.step,
            "fs3-replays": Replays(self._engine, wall_clock_ns, config).step,
        }
        return {name: Worker(name, step, config.retry_pause_min_s) for name, step in steps.items()}

    def _inputs(self) -> Inputs:
        return Inputs(
            now_ns=wall_clock_ns(),
            dice=self._dice,
            next_inode=self._numbers.take,
            routing=self._routing(),
            space=self._space,
            garbage_delay_ns=int(self._config.jobs.garbage_delay_s * NANOSECONDS_PER_SECOND),
            entries_checked_max=self._config.entries_checked_max,
        )

    def _serve(self) -> None:
        while not self._stopping:
            try:
                requests = self._server.poll(self._config.batch_length_max, _POLL_S)
                if requests:
                    self._answer(requests)
            except Exception:
                _log.exception("defect in the metadata service; it goes on")

    def _answer(self, requests: Sequence[Request]) -> None:
        taken_at = time.perf_counter()
        calls: list[Call] = []
        callers: list[tuple[int, int]] = []
        at_once: list[Addressed] = []
        for connection, request, method, body, _, _ in requests:
            try:
                if method == FOLLOW:
                    at_once.append((connection, request, self._followed(body)))
                    continue
                calls.append(_decode(method, body))
                callers.append((connection, request))
            except Fs3Error as error:
                at_once.append((connection, request, error_reply(error)))
        replies = self._run(calls) if calls else ()
        on_media = list[Addressed]()
        for (connection, request), call, reply in zip(callers, calls, replies, strict=True):
            must_wait = type(call.request) is wire.Sync and reply.status == 0
            (on_media if must_wait else at_once).append((connection, request, reply))
        names = (type(call.request).__name__ for call in calls)
        statuses = (reply.status for reply in replies)
        self.statistics.record(zip(names, statuses, strict=True), time.perf_counter() - taken_at)
        self._send(at_once)
        if on_media:
            self._media.add(on_media)
        if any(_may_cut(call.request) for call in calls):
            self._workers[_CUTS].kick()

    def _followed(self, body: bytes) -> Reply:
        try:
            request = _decode_follow(body)
        except msgspec.MsgspecError as error:
            raise InvalidArgument(f"malformed Follow request: {error}") from None
        return Reply(0, _encode(self._follow(request)))

    def _send(self, replies: Sequence[Addressed]) -> None:
        self._server.reply([(connection, n, *reply) for connection, n, reply in replies])

    def _run(self, calls: Sequence[Call]) -> Sequence[Reply]:
        """Replies of a committed batch; when it cannot commit, every call fails alike."""
        try:
            self._numbers.refill()
            inputs = self._inputs()
            return self._engine.transact(lambda t: run_batch(t, inputs, calls))
        except Fs3Error as error:
            _log.warning("a batch of %d requests failed: %s", len(calls), error)
            return [error_reply(error)] * len(calls)
        except Exception:
            _log.exception("defect in a batch of %d requests", len(calls))
            failure = Internal("the metadata service failed inside; its log says where")
            return [error_reply(failure)] * len(calls)


def _decode(method: int, body: bytes) -> Call:
    decoder = _DECODERS.get(method)
    if decoder is None:
        raise VersionMismatch(
            f"metadata method {method:#06x} is unknown here; update the metadata service"
        )
    try:
        caller, request = decoder.decode(body)
    except msgspec.MsgspecError as error:
        name = wire.METHODS[method][0].__name__
        raise InvalidArgument(f"malformed {name} request: {error}") from None
    return Call(caller, request)


def _may_cut(request: wire.Request) -> bool:
    return isinstance(request, wire.Truncate) or (
        isinstance(request, wire.Open) and bool(request.flags & os.O_TRUNC)
    )
