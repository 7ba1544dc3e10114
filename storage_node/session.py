"""A node's standing connection to the cluster manager: register, then heartbeats until it breaks.

One thread. A broken connection is made anew after a short pause, for ever: a manager that is away
stops chain changes, not IO. Two answers end it: the node belongs to another cluster (fatal), or
this incarnation was proven gone (start over).
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

import grpc

from fs3.config.cluster import Endpoint
from fs3.errors import Advice, Fs3Error
from fs3.ids import Incarnation, NodeId
from fs3.runtime import control, liveness
from fs3.wire.proto import manager_pb2, manager_pb2_grpc
from storage_node import messages
from storage_node.core.report import Probed, Reporter

log = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 5.0
PROBE_TIMEOUT_S: Final = 0.2


class ManagerSession:
    """Args:
    channel: to the manager.
    endpoint: of the manager, for messages.
    registration: what to announce.
    reporter: what to say in heartbeats.
    measure: called before each heartbeat to bring `reporter` up to date.
    reconnect_s: pause before the manager is tried again.
    on_start_over: this incarnation is excluded for good.
    on_fatal: the manager will never accept this node.
    """

    def __init__(
        self,
        *,
        channel: grpc.Channel,
        endpoint: Endpoint,
        registration: manager_pb2.NodeRegistration,
        reporter: Reporter,
        measure: Callable[[], None],
        reconnect_s: float,
        on_start_over: Callable[[], None],
        on_fatal: Callable[[Fs3Error], None],
    ) -> None:
        self._stub = manager_pb2_grpc.ClusterManagerStub(channel)
        self._endpoint = endpoint
        self._registration = registration
        self._reporter = reporter
        self._measure = measure
        self._reconnect_s = reconnect_s
        self._on_start_over = on_start_over
        self._on_fatal = on_fatal
        self._wake = threading.Condition()
        self._news = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fs3-manager", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tell(self, change: Callable[[Reporter], None]) -> None:
        """Applies `change` to the report and sends it at once."""
        with self._wake:
            change(self._reporter)
            self._news = True
            self._wake.notify_all()

    def note(self, change: Callable[[Reporter], None]) -> None:
        """Applies `change` to the report; it goes with the next heartbeat."""
        with self._wake:
            change(self._reporter)

    def stop(self) -> None:
        """Ends the stream; the manager notices. Idempotent."""
        self._stopping.set()
        with self._wake:
            self._wake.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(CALL_TIMEOUT_S)

    def _run(self) -> None:
        is_first = True
        while not self._stopping.is_set():
            try:
                period_s = self._register()
                is_first = True
                log.info("registered with the cluster manager at %s", self._endpoint)
                self._exchange(period_s)
            except grpc.RpcError as failure:
                error = control.error_of(failure, self._endpoint)
                if error.advice in (Advice.FIX_REQUEST, Advice.REOPEN):
                    self._give_up(error)
                    return
                log.log(logging.WARNING if is_first else logging.DEBUG, "%s", error)
                is_first = False
            except ValueError:  # the channel was closed
                return
            self._stopping.wait(self._reconnect_s)

    def _register(self) -> float:
        answer = self._stub.RegisterNode(self._registration, timeout=CALL_TIMEOUT_S)
        return answer.heartbeat_period_s

    def _exchange(self, period_s: float) -> None:
        with self._wake:
            self._reporter.connected()
        ended = threading.Event()
        try:
            for command in self._stub.Heartbeat(self._heartbeats(period_s, ended)):
                for probe in command.probes:
                    self._probe(probe)
                if command.start_over:
                    self._on_start_over()
                if command.register_again or command.start_over:
                    return
        finally:
            ended.set()

    def _heartbeats(
        self, period_s: float, ended: threading.Event
    ) -> Iterator[manager_pb2.NodeHeartbeat]:
        """Run by gRPC in a thread of its own."""
        node = NodeId(self._registration.node_id)
        incarnation = Incarnation(self._registration.incarnation)
        while not (self._stopping.is_set() or ended.is_set()):
            self._measure()
            with self._wake:
                report, self._news = self._reporter.take(), False
            yield messages.heartbeat(node, incarnation, report)
            with self._wake:
                self._wake.wait_for(lambda: self._news or self._stopping.is_set(), period_s)

    def _probe(self, probe: manager_pb2.Probe) -> None:
        node, endpoint = NodeId(probe.node_id), Endpoint(probe.host, probe.port)
        outcome, answered = liveness.probe(endpoint, node, PROBE_TIMEOUT_S)
        log.info("liveness port of node %d: %s", node, outcome.name)
        probed = Probed(node, Incarnation(probe.incarnation), outcome, answered)
        self.tell(lambda reporter: reporter.probed(probed))

    def _give_up(self, error: Fs3Error) -> None:
        if error.advice is Advice.REOPEN:
            self._on_start_over()
        else:
            self._on_fatal(error)
