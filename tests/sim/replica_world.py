"""A chain of replicas on virtual time, driven by one seed; the machines are the shipped ones.

What may go wrong (anything else is a defect of the machine):
  * a message takes any time; messages of one connection keep their order, those of different
    connections do not
  * a connection breaks: a suffix of what is under way is lost, the rest still arrives, all waiting
    requests fail; later messages use a new connection and may overtake the old ones
  * a node is killed: what was persisted stays, what was being persisted may or may not; the mark
    that says "committed" may be lost
  * a client retries after a time-out, and its earlier attempts arrive late
  * the manager removes the killed (and, after fencing it, also a healthy) member, and lets it
    return by a full copy, or as the last one that was serving

What is checked: see `check_reads_and_writes`, `check_quiet`, and the machines' own invariants after
each event.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from fs3._native import Replica, ReplicaUpdate

OK, BUSY, UNAVAILABLE, STALE_ROUTING, STALE_HANDLE = 0, 9, 10, 12, 13
WRITE, TRUNCATE, REMOVE, REPLACE = 1, 2, 3, 4
NO_CUT = 0xFFFFFFFF

Version = tuple[int, int]
NO_VERSION: Version = (0, 0)


@dataclass(frozen=True)
class State:
    """One version of a chunk. `records` maps (client, channel, sequence) to (version, length)."""

    version: Version = NO_VERSION
    live: bool = False
    data: bytes = b""
    truncate_version: int = 0
    records: tuple[tuple[tuple[int, int, int], tuple[Version, int]], ...] = ()


def apply(state: State, update: ReplicaUpdate) -> State:
    """What a chunk store makes of an update."""
    if update.kind == REPLACE:
        given: State = update.payload
        return replace(given, version=update.version)
    data = state.data if state.live else b""
    if update.kind == WRITE:
        head = data[: update.offset].ljust(update.offset, b"\0")
        data = head + update.payload + data[update.offset + len(update.payload) :]
    elif update.kind == TRUNCATE:
        data = data[: update.length]
    else:
        data = b""
    records = tuple(
        (tag, result)
        for tag, result in state.records
        if not (
            tag[:2] == (update.client, update.channel) and tag[2] <= update.acknowledged_through
        )
        and tag[0] not in update.expired_clients
    )
    if update.client:
        tag = (update.client, update.channel, update.sequence)
        records += ((tag, (update.version, len(data))),)
    return State(
        version=update.version,
        live=update.kind == WRITE or (state.live and update.kind == TRUNCATE),
        data=data,
        truncate_version=max(state.truncate_version, update.truncate_version),
        records=records,
    )


@dataclass
class Store:
    """What survives the kill of a node's process."""

    committed: dict[bytes, State] = field(default_factory=dict)
    pending: dict[bytes, State] = field(default_factory=dict)
    previous: dict[bytes, State | None] = field(default_factory=dict)

    def persist(self, update: ReplicaUpdate) -> State:
        chunk = update.chunk
        if update.kind == REPLACE:
            self.committed.pop(chunk, None)
        elif chunk in self.committed:
            assert update.version > self.committed[chunk].version, "versions grow"
        assert chunk not in self.pending or update.kind == REPLACE, "one version under way"
        self.pending[chunk] = apply(self.committed.get(chunk, State()), update)
        return self.pending[chunk]

    def commit(self, chunk: bytes, version: Version) -> None:
        assert self.pending[chunk].version == version, "only what is pending is committed"
        self.previous[chunk] = self.committed.get(chunk)
        self.committed[chunk] = self.pending.pop(chunk)

    def held(self, chunk: bytes, version: Version | None) -> State | None:
        if version is None:
            return self.committed.get(chunk, State())
        found = (self.committed.get(chunk), self.pending.get(chunk))
        return next((s for s in found if s is not None and s.version == version), None)

    def lose_a_mark(self, random: Random) -> None:
        """The last commit of some chunks was not recorded: they are found uncommitted."""
        for chunk, before in self.previous.items():
            if chunk in self.committed and chunk not in self.pending and random.random() < 0.3:
                self.pending[chunk] = self.committed.pop(chunk)
                if before is not None:
                    self.committed[chunk] = before
        self.previous.clear()


@dataclass
class Operation:
    """One client operation and what became of it."""

    number: int
    kind: str
    chunk: bytes
    update: ReplicaUpdate | None
    began: float
    ended: float | None = None
    code: int | None = None
    version: Version = NO_VERSION
    seen: State | None = None
    attempts: int = 0


@dataclass
class Link:
    """One direction of the present connection between two nodes."""

    epoch: int = 0
    busy_until: float = 0.0
    requests: dict[int, Callable[[int, Any], None]] = field(default_factory=dict)


class Node:
    """The shell around one machine: store, messages, timers."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.store = Store()
        self.machine: Replica | None = None
        self.incarnation = 0
        self.tokens = itertools.count(1)
        self.answers: dict[int, Callable[..., None]] = {}
        self.persist_at: dict[bytes, float] = {}
        self.start()

    def start(self) -> None:
        self.incarnation += 1
        recovered = [(chunk, state.version) for chunk, state in self.store.pending.items()]
        self.machine = Replica(self.number, updates_max=64, copies_max=2, recovered=recovered)

    def kill(self) -> None:
        self.machine = None
        self.answers.clear()
        self.persist_at.clear()
        self.store.lose_a_mark(self.world.random)
        for other in self.world.nodes:
            self.world.break_connection(self.number, other.number)

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Runs `action` unless this process has been killed in the meantime."""
        incarnation = self.incarnation

        def run() -> None:
            if self.machine is not None and self.incarnation == incarnation:
                action()

        self.world.after(delay, run)

    def handle(self, event: str, *arguments: Any) -> None:
        assert self.machine is not None
        for effect in getattr(self.machine, event)(*arguments):
            getattr(self, effect[0])(*effect[1:])

    def token(self, answer: Callable[..., None]) -> int:
        token = next(self.tokens)
        self.answers[token] = answer
        return token

    def delay(self) -> float:
        return 0.0 if self.world.random.random() < 0.5 else self.world.random.expovariate(2000)

    # Effects.

    def load_chunk(self, chunk: bytes) -> None:
        def loaded() -> None:
            state = self.store.committed.get(chunk)
            given = None
            if state is not None:
                records = [(*tag, *result) for tag, result in state.records]
                given = (
                    state.version,
                    len(state.data),
                    state.live,
                    state.truncate_version,
                    records,
                )
            self.handle("on_loaded", chunk, OK, given)

        self.after(self.delay(), loaded)

    def list_chunks(self, after: bytes | None, chain_version: int) -> None:
        def listed() -> None:
            held = sorted(set(self.store.committed) | set(self.store.pending))
            page = [c for c in held if after is None or c > after]
            self.handle("on_listed", chain_version, OK, page[:2], len(page) > 2)

        self.after(self.delay(), listed)

    def persist(self, update: ReplicaUpdate) -> None:
        self.world.note_stamp(self, update)
        at = max(
            self.world.now + self.world.random.expovariate(500),
            self.persist_at.get(update.chunk, 0),
        )
        self.persist_at[update.chunk] = at

        def persisted() -> None:
            state = self.store.persist(update)
            self.handle("on_persisted", update.chunk, update.version, OK, len(state.data))

        self.after(at - self.world.now, persisted)

    def commit(self, chunk: bytes, version: Version) -> None:
        self.store.commit(chunk, version)

    def discard(self, chunk: bytes, version: Version) -> None:
        assert self.store.pending.pop(chunk).version == version

    def forward(self, update: ReplicaUpdate, chain_version: int, upstream_persisted: bool) -> None:
        def answered(code: int, full: Any) -> None:
            self.handle(
                "on_acknowledge", chain_version, update.chunk, update.version, code, bool(full)
            )

        self.request_successor("on_forward", answered, chain_version, update, upstream_persisted)

    def forward_chunk(self, chunk: bytes, version: Version, chain_version: int) -> None:
        def read() -> None:
            state = self.store.held(chunk, version)
            if state is None:
                self.handle("on_acknowledge", chain_version, chunk, version, UNAVAILABLE, False)
                return
            update = ReplicaUpdate(
                chunk=chunk, version=version, kind=REPLACE, length=len(state.data), payload=state
            )
            self.forward(update, chain_version, upstream_persisted=True)

        self.after(self.delay(), read)

    def send_persisted(self, chunk: bytes, version: Version, chain_version: int) -> None:
        self.request_successor("on_upstream_persisted", None, chain_version, chunk, version)

    def request_successor(
        self, event: str, answered: Callable[[int, Any], None] | None, *arguments: Any
    ) -> None:
        assert self.machine is not None
        successor = self.machine.successor
        if successor is not None:
            self.world.request(self.number, successor, event, answered, *arguments)

    def acknowledge(self, token: int, code: int, full: bool) -> None:
        self.answers.pop(token)(code, full)

    def reply(self, token: int, code: int, version: Version, length: int) -> None:
        self.answers.pop(token)(code, version, length)

    def ask_tail(self, token: int, chunk: bytes, chain_version: int) -> None:
        assert self.machine is not None

        def answered(code: int, version: Any) -> None:
            self.handle("on_tail_answer", token, code, version or NO_VERSION)

        self.world.request(
            self.number, self.machine.tail, "committed_query", answered, chain_version, chunk
        )

    def committed_query(self, token: int, chain_version: int, chunk: bytes) -> None:
        assert self.machine is not None
        if not self.machine.is_tail(chain_version):
            self.answers.pop(token)(STALE_ROUTING, None)
            return
        state = self.store.committed.get(chunk, State())
        self.answers.pop(token)(OK, state.version)

    def serve_read(self, token: int, version: Version | None) -> None:
        self.answers.pop(token)(OK, version)

    def refuse_read(self, token: int, code: int) -> None:
        self.answers.pop(token)(code, None)

    def retry_later(self) -> None:
        self.after(0.005, lambda: self.handle("on_retry"))

    def send_sync_done(self, chain_version: int) -> None:
        def answered(code: int, _full: Any) -> None:
            self.handle("on_sync_done_answer", chain_version, code)

        self.request_successor("on_sync_done", answered, chain_version)

    def drop_chunk(self, chunk: bytes, chain_version: int) -> None:
        def dropped() -> None:
            self.store.committed.pop(chunk, None)
            self.store.pending.pop(chunk, None)
            self.handle("on_dropped", chain_version, OK)

        self.after(self.delay(), dropped)

    def sync_finished(self, token: int, chain_version: int) -> None:
        self.answers.pop(token)(OK, False)
        self.world.after(
            self.world.random.uniform(0.001, 0.05),
            lambda: self.world.promote(self.number, chain_version),
        )


class World:
    """Nodes, network, manager and clients of one chain."""

    def __init__(
        self, seed: int, *, nodes: int = 3, chunks: int = 4, operations: int = 480
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.links: dict[tuple[int, int], Link] = {}
        self.nodes = [Node(self, number) for number in range(nodes)]
        self.chunks = [bytes(11) + bytes([i]) + bytes(4) for i in range(chunks)]
        self.stamps: dict[tuple[bytes, Version], tuple[Version, ReplicaUpdate]] = {}
        self.operations: list[Operation] = []
        self.truncate_versions = dict.fromkeys(self.chunks, 0)
        self.faults = True
        # The manager's view.
        self.version = 0
        self.serving = list(range(nodes))
        self.syncing: int | None = None
        self.last_serving: list[int] = []
        self.publish()
        for client in range(1, 4):
            for channel in range(2):
                self.run_client(client, channel, operations // 6)
        self.after(self.random.uniform(0.01, 0.05), self.cause_trouble)

    # Time and network.

    def after(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.order), action))

    def run(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, action = heapq.heappop(self.events)
            action()
        self.now = until

    def link(self, source: int, target: int) -> Link:
        return self.links.setdefault((source, target), Link())

    def arrival(self, link: Link) -> float:
        link.busy_until = max(link.busy_until, self.now + self.random.expovariate(1000))
        return link.busy_until - self.now

    def request(
        self,
        source: int,
        target: int,
        event: str,
        answered: Callable[[int, Any], None] | None,
        *arguments: Any,
    ) -> None:
        """`answered` gets (code, value): UNAVAILABLE when the connection breaks."""
        link = self.link(source, target)
        number, epoch = next(self.order), link.epoch
        sender = self.nodes[source]
        sender_incarnation = sender.incarnation
        if answered is not None:
            link.requests[number] = answered

        def deliver_answer(code: int, value: Any) -> None:
            if link.epoch != epoch or sender.incarnation != sender_incarnation:
                return
            waiting = link.requests.pop(number, None)
            if waiting is not None and sender.machine is not None:
                waiting(code, value)

        def deliver() -> None:
            receiver = self.nodes[target]
            lost = link.epoch != epoch and self.random.random() < 0.5
            if receiver.machine is None or lost:
                if link.epoch == epoch:
                    self.break_connection(source, target)
                return
            if answered is None:
                receiver.handle(event, *arguments)
                return
            back = self.link(target, source)
            token = receiver.token(
                lambda code, value: self.after(
                    self.arrival(back), lambda: deliver_answer(code, value)
                )
            )
            if event == "committed_query":
                receiver.committed_query(token, *arguments)
            else:
                receiver.handle(event, token, *arguments)

        self.after(self.arrival(link), deliver)

    def break_connection(self, one: int, other: int) -> None:
        """Both directions: waiting requests fail at their senders, a little later."""
        for source, target in ((one, other), (other, one)):
            link = self.link(source, target)
            link.epoch += 1
            link.busy_until = 0.0
            failed, link.requests = link.requests, {}
            for answered in failed.values():
                self.nodes[source].after(0.001, partial(answered, UNAVAILABLE, None))

    # The manager.

    def publish(self, fence: int | None = None) -> None:
        """A new chain version goes to every node at its own time, to `fence` before all others."""
        self.version += 1
        version = self.version
        members = [(n, False) for n in self.serving]
        if self.syncing is not None and self.serving:
            members.append((self.syncing, True))
        if self.serving:
            self.last_serving = list(self.serving)
        self.members = members
        if fence is not None:
            self.nodes[fence].handle("on_chain", version, members)
        for node in self.nodes:
            adopt = partial(node.handle, "on_chain", version, members)
            node.after(self.random.expovariate(200), adopt)

    def remove(self, number: int, *, fence: bool) -> None:
        if number == self.syncing:
            self.syncing = None
        elif number in self.serving:
            if len(self.serving) == 1 and fence:
                return  # never take the last one away
            self.serving.remove(number)
        else:
            return
        self.publish(fence=number if fence else None)

    def remove_if_dead(self, node: Node) -> None:
        if node.machine is None:
            self.remove(node.number, fence=False)

    def admit(self) -> None:
        """Lets members return: any of the last serving set alone, others by a full copy."""
        alive = [n.number for n in self.nodes if n.machine is not None]
        if not self.serving:
            back = [n for n in alive if n in self.last_serving]
            if back:
                self.serving, self.syncing = [self.random.choice(back)], None
                self.publish()
        elif self.syncing is None:
            out = [n for n in alive if n not in self.serving]
            if out:
                self.syncing = self.random.choice(out)
                self.publish()

    def promote(self, number: int, chain_version: int) -> None:
        if number == self.syncing and chain_version == self.version:
            self.syncing = None
            self.serving.append(number)
            self.publish()

    def cause_trouble(self) -> None:
        if not self.faults:
            return
        choice = self.random.random()
        node = self.random.choice(self.nodes)
        if choice < 0.3 and node.machine is not None:
            node.kill()
            self.after(self.random.uniform(0.0, 0.05), lambda: self.remove_if_dead(node))
            self.after(self.random.uniform(0.06, 0.2), lambda: self.restart(node))
        elif choice < 0.7:
            other = self.random.choice(self.nodes)
            self.break_connection(node.number, other.number)
        elif choice < 0.8 and node.machine is not None:
            self.remove(node.number, fence=True)
        else:
            self.admit()
        self.after(self.random.expovariate(40), self.cause_trouble)

    def restart(self, node: Node) -> None:
        if node.machine is None:
            self.remove_if_dead(node)  # a new incarnation never re-enters as serving
            node.start()

    # Clients: one operation at a time per channel, retried until it is answered.

    def run_client(self, client: int, channel: int, operations: int) -> None:
        sequence = itertools.count(1)

        def begin_next() -> None:
            number = next(sequence)
            if number > operations:
                return
            operation = self.make_operation(client, channel, number)
            self.operations.append(operation)
            self.attempt(operation, lambda: self.after(self.random.expovariate(300), begin_next))

        self.after(self.random.expovariate(300), begin_next)

    def make_operation(self, client: int, channel: int, sequence: int) -> Operation:
        chunk = self.random.choice(self.chunks)
        choice = self.random.random()
        common: dict[str, Any] = {
            "chunk": chunk,
            "client": client,
            "channel": channel,
            "sequence": sequence,
            "acknowledged_through": sequence - 1,
        }
        update = None
        kind = "read" if choice < 0.35 else "write"
        if choice > 0.9:
            self.truncate_versions[chunk] += 1
            length = self.random.randrange(4)
            update_kind = REMOVE if choice > 0.96 else TRUNCATE
            update = ReplicaUpdate(
                **common,
                kind=update_kind,
                length=length,
                truncate_version=self.truncate_versions[chunk],
            )
        elif kind == "write":
            stale = 1 if self.random.random() < 0.1 else 0
            data = b"%d.%d.%d;" % (client, channel, sequence)
            known = max(0, self.truncate_versions[chunk] - stale)
            update = ReplicaUpdate(
                **common,
                kind=WRITE,
                offset=self.random.randrange(4),
                length=len(data),
                payload=data,
                truncate_version=known,
                cut=self.random.choice((2, NO_CUT)),
            )
        return Operation(len(self.operations), kind, chunk, update, self.now)

    def attempt(self, operation: Operation, done: Callable[[], None]) -> None:
        if operation.ended is not None:
            return
        operation.attempts += 1
        serving = [n for n, syncing in self.members if not syncing]
        version = self.version if self.random.random() < 0.9 else max(1, self.version - 1)
        if serving:
            target = serving[0] if operation.update else self.random.choice(serving)
            lag = self.random.expovariate(500)
            self.after(lag, lambda: self.deliver(operation, self.nodes[target], version, done))
        self.after(self.random.uniform(0.02, 0.08), lambda: self.attempt(operation, done))

    def deliver(
        self, operation: Operation, node: Node, version: int, done: Callable[[], None]
    ) -> None:
        if node.machine is None:
            return

        def answered(code: int, given: Any, _length: int = 0) -> None:
            seen = None
            if operation.update is None and code == OK:
                seen = node.store.held(operation.chunk, given)
                assert seen is not None, "a version that is served is held"
            lag = self.random.expovariate(500)
            if self.random.random() < 0.9:
                self.after(lag, lambda: self.finish(operation, code, given, seen, done))

        if operation.update is None:
            node.handle("on_read", node.token(answered), version, operation.chunk)
        else:
            node.handle("on_client_update", node.token(answered), version, operation.update)

    def finish(
        self,
        operation: Operation,
        code: int,
        given: Any,
        seen: State | None,
        done: Callable[[], None],
    ) -> None:
        if operation.ended is not None or code in (BUSY, UNAVAILABLE, STALE_ROUTING):
            return
        operation.ended, operation.code, operation.seen = self.now, code, seen
        if code == OK:
            operation.version = seen.version if seen is not None else given
        done()

    # Checkers.

    def note_stamp(self, node: Node, update: ReplicaUpdate) -> None:
        """A version is given once, to one update on one base."""
        if update.kind == REPLACE:
            return
        key = (update.chunk, update.version)
        base = node.store.committed.get(update.chunk, State()).version
        if key not in self.stamps:
            self.stamps[key] = (base, update)
            return
        known_base, known = self.stamps[key]
        assert base == known_base, f"{key} is based on {base} here, on {known_base} elsewhere"
        tags = [(u.client, u.channel, u.sequence, u.kind) for u in (known, update)]
        assert tags[0] == tags[1], f"{key} names two updates"

    def lineage(self, chunk: bytes, version: Version) -> list[tuple[Version, ReplicaUpdate]]:
        """All updates that lead to a version, oldest first."""
        found = []
        while version != NO_VERSION:
            base, update = self.stamps[chunk, version]
            found.append((version, update))
            version = base
        return found[::-1]

    def quiesce(self) -> None:
        """Ends the trouble and lets everything come back."""
        self.faults = False
        for node in self.nodes:
            self.restart(node)
        for _ in range(200):
            self.run(self.now + 0.2)
            if not self.serving or (self.syncing is None and len(self.serving) < len(self.nodes)):
                self.admit()
            elif self.syncing is None and all(o.ended is not None for o in self.operations):
                break
        self.run(self.now + 5.0)

    def check_quiet(self) -> None:
        """Everything came back, replicas are equal, and no acknowledged update is lost."""
        assert len(self.serving) == len(self.nodes), f"chain stuck: {self.members}"
        unfinished = [o for o in self.operations if o.ended is None]
        assert not unfinished, f"operations without an end: {unfinished[:3]}"
        for node in self.nodes:
            assert not node.store.pending
            assert node.store.committed == self.nodes[0].store.committed, "replicas differ"
            assert node.machine is not None
            assert node.machine.updates == 0
        for chunk in self.chunks:
            final = self.nodes[0].store.committed.get(chunk, State())
            history = self.lineage(chunk, final.version)
            state = State()
            for _, update in history:
                state = apply(state, update)
            assert state == final, "the content is not what its history makes"
            tags = [(u.client, u.channel, u.sequence) for _, u in history if u.client]
            assert len(tags) == len(set(tags)), "an update was applied twice"
            versions = {NO_VERSION} | {version for version, _ in history}
            for operation in self.operations:
                if operation.chunk == chunk and operation.code == OK:
                    assert operation.version in versions, f"acknowledged, then lost: {operation}"

    def check_reads_and_writes(self) -> None:
        """Versions follow real time, and every read saw what its version's history makes."""
        for chunk in self.chunks:
            done = [o for o in self.operations if o.chunk == chunk and o.code == OK]
            for operation in done:
                if operation.seen is not None:
                    state = State()
                    for _, update in self.lineage(chunk, operation.version):
                        state = apply(state, update)
                    assert state.data == operation.seen.data, f"{operation} read wrong bytes"
            for before in done:
                for after in done:
                    if before.ended is not None and before.ended < after.began:
                        assert before.version <= after.version, (
                            f"{after} is older than {before}, which had ended"
                        )
