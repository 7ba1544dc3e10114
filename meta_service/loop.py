"""The one place where the cluster machine runs: takes events on an event loop, carries effects out.

Only the loop's thread touches the machine. What blocks (a commit to media, a probe of a liveness
port) runs in worker threads and comes back as an event. Commits go through one thread in the order
the machine gave them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fs3.config.cluster import Endpoint
from fs3.config.manager import ManagerConfig
from fs3.ids import Incarnation, NodeId
from fs3.runtime import liveness
from fs3.wire.proto import manager_pb2
from meta_service.cluster_store import ClusterStore
from meta_service.core import events
from meta_service.core.clients import Clients
from meta_service.core.cluster import ClusterMachine, Stored
from meta_service.core.events import Answer, Token
from meta_service.rpc import convert

log = logging.getLogger(__name__)

PROBE_THREADS: Final = 16
Commands = asyncio.Queue[manager_pb2.NodeCommand]


class ManagerLoop:
    """Args:
    config: settings.
    store: where commits go; its epoch is taken.
    stored: what was read from it.
    on_failure: called once when nothing can be stored any more; the process has to end.

    All methods run on the loop's thread.
    """

    def __init__(
        self,
        config: ManagerConfig,
        store: ClusterStore,
        stored: Stored,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.epoch = store.epoch
        self.machine = ClusterMachine(config, store.epoch, stored, self.now())
        self.clients = Clients(config.client_expires_s, self.now())
        self.news = asyncio.Event()
        self.is_stopping = False
        self._store = store
        self._on_failure = on_failure
        self._asked: dict[Token, asyncio.Future[Answer]] = {}
        self._token = 0
        self._nodes: dict[NodeId, Commands] = {}
        self._commits: asyncio.Queue[events.Commit] = asyncio.Queue()
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="fs3-commit")
        self._probers = ThreadPoolExecutor(PROBE_THREADS, thread_name_prefix="fs3-probe")
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def now() -> float:
        """Seconds since boot, sleep of the machine included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def start(self) -> None:
        self._spawn(self._tick())
        self._spawn(self._commit())

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._committer.shutdown()
        self._probers.shutdown(cancel_futures=True)

    def happened(self, event: events.Event) -> None:
        """Gives the machine an event and carries out what it orders."""
        for effect in self.machine.handle(event, self.now()):
            self._perform(effect)

    async def ask(self, make: events.Asking) -> Answer:
        """Gives the machine the event that `make` builds and waits for its answer."""
        self._token += 1
        token = self._token
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[token] = future
        try:
            self.happened(make(token))
            return await future
        finally:
            del self._asked[token]

    def attach(self, node: NodeId, commands: Commands) -> None:
        """Commands for the node go to this stream from now on."""
        self._nodes[node] = commands

    def detach(self, node: NodeId, commands: Commands, incarnation: Incarnation) -> None:
        """The node's stream ended: evidence, unless a newer stream has taken its place."""
        if self._nodes.get(node) is commands:
            del self._nodes[node]
            if not self.is_stopping:
                self.happened(events.NodeAccused(node, incarnation))

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Commit():
                self._commits.put_nowait(effect)
            case events.Publish():
                log.info("routing %d.%d", effect.routing.epoch, effect.routing.version)
                self.news.set()
                self.news = asyncio.Event()
            case events.Answer():
                future = self._asked.get(effect.token)
                if future is not None and not future.done():
                    future.set_result(effect)
            case events.Instruct():
                self._command(effect.node, convert.command(effect.verdict))
            case events.ProbeLiveness(by=None):
                self._spawn(self._probe(effect))
            case events.ProbeLiveness(by=peer) if peer is not None:
                self._command(peer, convert.probe_command(effect))

    def _command(self, node: NodeId, command: manager_pb2.NodeCommand) -> None:
        commands = self._nodes.get(node)
        if commands is not None:
            commands.put_nowait(command)

    async def _probe(self, effect: events.ProbeLiveness) -> None:
        outcome, answered = await asyncio.get_running_loop().run_in_executor(
            self._probers,
            liveness.probe,
            Endpoint(effect.host, effect.port),
            effect.node,
            self.config.probe_timeout_s,
        )
        log.info("liveness port of node %d: %s", effect.node, outcome.name)
        self.happened(events.LivenessProbed(effect.node, effect.incarnation, outcome, answered))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.config.tick_s)
            self.happened(events.Ticked())
            self.clients.forget_expired(self.now())

    async def _commit(self) -> None:
        while True:
            commit = await self._commits.get()
            try:
                if commit.puts:
                    await asyncio.get_running_loop().run_in_executor(
                        self._committer, self._store.commit, commit.puts
                    )
            except Exception as error:
                log.exception("the manager cannot store its state and stops")
                self._on_failure(error)
                return
            self.happened(events.Committed(commit.serial))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
