"""A storage server without data: keeps targets and chains, and says what a test makes it say.

It listens on real ports, so that endpoints are real, and reports a copy to a SYNCING target as
finished as soon as it learns of the chain, as a native server without chunks does.
"""

import contextlib
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fs3._native import NativeError
from fs3.errors import Conflict, NotFound, Unavailable
from fs3.model.routing import TargetState
from storage_node.engine.port import ChainMember

_CAPACITY_BYTES = 1 << 30


@dataclass(frozen=True)
class FakeEvent:
    kind: str
    target_id: int = 0
    chain_id: int = 0
    chain_version: int = 0
    node_id: int = 0
    code: int = 0
    message: str = ""
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class FakeSpace:
    target_id: int
    capacity_bytes: int = _CAPACITY_BYTES
    used_bytes: int = 0
    free_bytes: int = _CAPACITY_BYTES
    chunks: int = 0


@dataclass(frozen=True)
class FakeChain:
    id: int
    version: int
    members: tuple[ChainMember, ...]


class FakeServer:
    """Implements `storage_node.engine.port.Server`; construct it as the native one."""

    def __init__(
        self,
        *,
        cluster_id: bytes,
        node_id: int,
        incarnation: int,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (0,),
        inflight_bytes_max: int = 1 << 28,
    ) -> None:
        self.identity = (cluster_id, node_id, incarnation, inflight_bytes_max)
        self.chains: dict[int, FakeChain] = {}
        self.adopted: list[tuple[int, int]] = []
        """Every (chain, version) that was adopted, in order."""
        self._generations: dict[int, int] = {}
        self._shards: dict[int, int] = {}
        self._events: list[FakeEvent] = []
        self._changed = threading.Condition()
        self._sockets = [_listen(host, port) for port in ports]

    def add_target(
        self, target_id: int, generation: int, directory: str, *, create: bool, shard: int = 0
    ) -> None:
        label = Path(directory) / "fake-target"
        if not label.exists():
            if not create:
                raise NativeError(NotFound.number, f"no target in {directory}")
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text(f"{target_id} {generation}")
        if label.read_text() != f"{target_id} {generation}":
            raise NativeError(Conflict.number, f"{directory} holds another target")
        self._generations[target_id] = generation
        self._shards[target_id] = shard

    def set_chain(
        self, target_id: int, chain_id: int, chain_version: int, members: Sequence[ChainMember]
    ) -> None:
        if target_id not in self._generations:
            raise NativeError(NotFound.number, f"no target {target_id:#x}")
        if any(m[0] == target_id and m[1] != self._generations[target_id] for m in members):
            raise NativeError(Conflict.number, f"target {target_id:#x} has another generation")
        known = self.chains.get(target_id)
        if known is not None and known.version >= chain_version:
            return
        self.chains[target_id] = FakeChain(chain_id, chain_version, tuple(members))
        self.adopted.append((chain_id, chain_version))
        if any(m[0] == target_id and m[2] == TargetState.SYNCING for m in members):
            self.say(FakeEvent("sync_finished", target_id, chain_id, chain_version))

    def say(self, event: FakeEvent) -> None:
        """The next `poll_events` returns `event`."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def poll_events(self, timeout_s: float) -> list[FakeEvent]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._events), timeout_s)
            taken, self._events = self._events, []
            return taken

    def space(self) -> list[FakeSpace]:
        return [FakeSpace(target) for target in self._generations]

    def counters(self) -> dict[str, int]:
        return {"targets": len(self._generations)}

    def endpoints(self) -> list[tuple[str, int]]:
        return [listening.getsockname()[:2] for listening in self._sockets]

    def target_endpoint(self, target_id: int) -> tuple[str, int]:
        return self.endpoints()[self._shards[target_id]]

    def stop(self) -> None:
        for listening in self._sockets:
            listening.close()


def _listen(host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as undo:
        listening = undo.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise NativeError(Unavailable.number, f"port {port}: {error}") from error
        listening.listen()
        undo.pop_all()
    return listening
