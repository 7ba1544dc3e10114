"""One storage node: the Python shell around the native storage server.

Order of a start: lock the directory, get a node id (the first time), open the liveness port, start
the server, open the targets, then register and follow the routing. So whoever reads of this node in
the routing finds it serving, and its liveness port is open for as long as anything of it is.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc

import fs3
from fs3._native import NativeError
from fs3.config.cluster import parse_url
from fs3.config.storage import StorageConfig
from fs3.errors import Advice, Fs3Error, Unavailable, from_number
from fs3.ids import ChainId, ChainVersion, ClusterId, NodeId, TargetId, new_incarnation
from fs3.model.routing import Chain, Member, NodeKind, Routing, TargetState
from fs3.runtime import control
from fs3.runtime.host import boot_id
from fs3.runtime.liveness import LivenessPort
from fs3.runtime.routing import RoutingWatcher
from fs3.wire.proto import manager_pb2, manager_pb2_grpc
from storage_node.core.report import Accusation, Finished, Progress, Reporter, Status
from storage_node.directory import Disk, NodeDirectory, TargetEntry, open_disks
from storage_node.engine.port import ChainMember, Event, MakeServer, Server
from storage_node.session import ManagerSession

log = logging.getLogger(__name__)

EVENT_WAIT_S: Final = 0.2
ALLOCATE_TIMEOUT_S: Final = 2.0
SPACE_PERIOD_S: Final = 1.0


class StorageNode:
    """A node from `start` to `stop`.

    Args:
        config: settings.
        make_server: `fs3._native.StorageServer`, or the fake.
        stopping: set when the process is asked to stop; `start` then gives up waiting.
        on_start_over: the manager has excluded this incarnation: the process has to start anew.
        on_fatal: the manager will never accept this node.
    """

    def __init__(
        self,
        config: StorageConfig,
        make_server: MakeServer,
        *,
        stopping: threading.Event,
        on_start_over: Callable[[], None],
        on_fatal: Callable[[Fs3Error], None],
    ) -> None:
        self._config = config
        self._make_server = make_server
        self._on_start_over = on_start_over
        self._on_fatal = on_fatal
        self._incarnation = new_incarnation()
        self._reporter = Reporter()
        self._stopping = stopping
        self._routing_lock = threading.Lock()
        self._routing: Routing | None = None
        self._targets: dict[TargetId, TargetEntry] = {}
        self._versions: dict[TargetId, ChainVersion] = {}
        self._measured_at = float("-inf")
        self.control_port = 0
        """Of StorageControl; set before `start` where it is served."""
        self.server: Server

    def start(self) -> None:
        """Returns when the node serves; it registers in the background.

        Raises:
            Fs3Error: the directory, a disk or a port cannot be used, or the manager refuses.
            Unavailable: it was asked to stop before a manager answered.
        """
        self._directory = NodeDirectory(Path(self._config.directory))
        self._watcher = RoutingWatcher(self._config.manager)
        if self._directory.node_id == 0:
            self._join_cluster()
        liveness = LivenessPort(self._config.host, self._directory.node_id, self._incarnation)
        self.server = self._listen()
        self._open_targets()
        self._session = ManagerSession(
            channel=self._watcher.channel,
            endpoint=self._watcher.endpoint,
            registration=self._registration(liveness.port),
            reporter=self._reporter,
            measure=self._measure,
            reconnect_s=self._config.reconnect_s,
            on_start_over=self._on_start_over,
            on_fatal=self._on_fatal,
        )
        self._session.start()
        self._watcher.subscribe(self._follow)
        self._watcher.start()
        self._events = threading.Thread(target=self._forward_events, name="fs3-events", daemon=True)
        self._events.start()

    def stop(self) -> None:
        """Stops serving, then leaves; the liveness port closes with the process."""
        self._stopping.set()
        self.server.stop()
        self._session.stop()
        self._watcher.close()
        self._events.join()

    def statuses(self) -> list[Status]:
        """Of all targets now."""
        return [
            Status(
                target=TargetId(space.target_id),
                capacity_bytes=space.capacity_bytes,
                used_bytes=space.used_bytes,
                free_bytes=space.free_bytes,
                chunks=space.chunks,
            )
            for space in self.server.space()
        ]

    def targets(self) -> list[manager_pb2.Target]:
        return [
            manager_pb2.Target(
                id=target,
                generation=entry.generation,
                port=self.server.target_endpoint(target)[1],
            )
            for target, entry in self._targets.items()
        ]

    # Start

    def _join_cluster(self) -> None:
        """Asks for a node id until the manager answers."""
        stub = manager_pb2_grpc.ClusterManagerStub(self._watcher.channel)
        request = manager_pb2.AllocateNodeRequest(
            cluster_id=self._directory.cluster_id,
            identity=self._directory.node.identity,
            wanted=self._config.node_id,
        )
        while not self._stopping.is_set():
            try:
                reply = stub.AllocateNode(request, timeout=ALLOCATE_TIMEOUT_S)
                break
            except grpc.RpcError as failure:
                error = control.error_of(failure, parse_url(self._config.manager))
                if error.advice is not Advice.RETRY:
                    raise error from None
                log.debug("waiting for the cluster manager: %s", error)
                self._stopping.wait(self._config.reconnect_s)
        else:
            raise Unavailable("stopped before a cluster manager answered")
        self._directory.node.node_id = reply.node_id
        self._directory.node.cluster_id = reply.cluster_id
        self._directory.save()

    def _listen(self) -> Server:
        """On the ports of last time where they are free, else on any."""
        wanted = self._directory.node.ports[: self._config.shards]
        wanted += [0] * (self._config.shards - len(wanted))
        try:
            server = self._serve_on(wanted)
        except NativeError as error:
            log.warning("cannot listen on ports %s again (%s); taking others", wanted, error)
            server = self._serve_on([0] * self._config.shards)
        ports = [port for _, port in server.endpoints()]
        if ports != self._directory.node.ports:
            self._directory.node.ports = ports
            self._directory.save()
        return server

    def _serve_on(self, ports: list[int]) -> Server:
        return self._make_server(
            cluster_id=self._directory.cluster_id,
            node_id=self._directory.node_id,
            incarnation=self._incarnation,
            host=self._config.host,
            ports=ports,
            inflight_bytes_max=self._config.inflight_bytes_max,
        )

    def _open_targets(self) -> None:
        paths = [Path(disk) for disk in self._config.disks] or [self._directory.path / "disk-0"]
        for disk in open_disks(paths, self._directory, self._config.targets_per_disk):
            fresh = [entry for entry in disk.file.targets if not entry.formatted]
            for number, entry in enumerate(disk.file.targets):
                self._open_target(disk, entry, shard=number % self._config.shards)
            if fresh:
                disk.mark_formatted(e for e in fresh if disk.target_id(e) in self._targets)

    def _open_target(self, disk: Disk, entry: TargetEntry, shard: int) -> None:
        target = disk.target_id(entry)
        path = disk.target_path(entry)
        try:
            self.server.add_target(
                target, entry.generation, str(path), create=not entry.formatted, shard=shard
            )
        except NativeError as error:
            log.error("target %#x in %s cannot be opened: %s", target, path, error)
            self._reporter.failed(target, str(from_number(error.code, error.message)))
        else:
            self._targets[target] = entry

    def _registration(self, liveness_port: int) -> manager_pb2.NodeRegistration:
        _, first_port = self.server.endpoints()[0]
        return manager_pb2.NodeRegistration(
            cluster_id=self._directory.cluster_id,
            node_id=self._directory.node_id,
            kind=NodeKind.STORAGE,
            identity=self._directory.node.identity,
            incarnation=self._incarnation,
            boot_id=boot_id(),
            host=self._config.host,
            port=first_port,
            liveness_port=liveness_port,
            domain=self._config.domain,
            weight=self._config.weight,
            targets=self.targets(),
            software=fs3.__version__,
            control_port=self.control_port,
        )

    # Routing

    def _follow(self, routing: Routing) -> None:
        """Gives every local target its chain, then tells the manager that it serves by it."""
        with self._routing_lock:
            self._routing = routing
            for chain in routing.chains:
                for member in chain.members:
                    if member.target in self._targets and self._is_ours(member):
                        self._adopt(member.target, chain)
        applied = (routing.epoch, routing.version)

        def say(reporter: Reporter) -> None:
            reporter.applied = max(reporter.applied, applied)

        self._session.tell(say)

    def _is_ours(self, member: Member) -> bool:
        """Not a role that an incarnation before this one was given: the manager that restarted
        with us still shows it until it has heard us all, and taking it would be serving without
        having been found complete."""
        has_role = member.state in (TargetState.SERVING, TargetState.SYNCING)
        return not has_role or member.incarnation == self._incarnation

    def _adopt(self, target: TargetId, chain: Chain) -> None:
        if self._versions.get(target, 0) >= chain.version:
            return
        members: list[ChainMember] = [
            (m.target, m.generation, m.state, m.host, m.port) for m in chain.members
        ]
        try:
            self.server.set_chain(target, chain.id, chain.version, members)
        except NativeError as error:
            log.error("target %#x refuses chain %d: %s", target, chain.id, error)
            return
        self._versions[target] = chain.version
        self._session.note(lambda reporter: reporter.chain_moved(chain.id, chain.version))

    # Events and space

    def _forward_events(self) -> None:
        while not self._stopping.is_set():
            for event in self.server.poll_events(EVENT_WAIT_S):
                self._forward(event)

    def _forward(self, event: Event) -> None:
        target, chain = TargetId(event.target_id), ChainId(event.chain_id)
        match event.kind:
            case "sync_finished":
                finished = Finished(chain, ChainVersion(event.chain_version), target)
                self._session.tell(lambda reporter: reporter.sync_finished(finished))
            case "sync_progress":
                progress = Progress(chain, target, event.done, event.total)
                self._session.note(lambda reporter: reporter.sync_progressed(progress))
            case "peer_refused" | "peer_reset":
                self._accuse(NodeId(event.node_id), is_refused=event.kind == "peer_refused")
            case "target_error":
                log.error("target %#x failed: %s", target, event.message)
                cause = str(from_number(event.code, event.message))
                self._session.tell(lambda reporter: reporter.failed(target, cause))
            case _:
                log.warning("%s on chain %d to node %d", event.kind, chain, event.node_id)

    def _accuse(self, node: NodeId, *, is_refused: bool) -> None:
        routing = self._routing
        known = next((n for n in routing.nodes if n.id == node), None) if routing else None
        if known is not None:
            accusation = Accusation(node, known.incarnation, is_refused)
            self._session.tell(lambda reporter: reporter.accuse(accusation))

    def _measure(self) -> None:
        now = time.monotonic()
        if now - self._measured_at < SPACE_PERIOD_S or self._stopping.is_set():
            return
        self._measured_at = now
        statuses = self.statuses()

        def say(reporter: Reporter) -> None:
            for status in statuses:
                reporter.measured(status)

        self._session.note(say)

    @property
    def cluster_id(self) -> ClusterId:
        return self._directory.cluster_id
