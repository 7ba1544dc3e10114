"""A namespace to play with: any engine, a clock that ticks by itself, seeded dice, callers."""

import os
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from fs3.errors import from_number
from fs3.ids import ROOT_INODE, ChainId, ClusterId, InodeId, RequestId
from fs3.model.inode import Inode
from fs3.model.routing import ChainTable, Routing
from fs3.units import MIB
from fs3.wire import metadata as wire
from fs3.wire.metadata import Caller
from meta_service.kv.memory import MemoryEngine
from meta_service.kv.transaction import Engine
from meta_service.namespace.batch import Call, run_batch
from meta_service.namespace.counters import InodeNumbers
from meta_service.namespace.inputs import Inputs, Space, directory_layout
from meta_service.namespace.replay import Reply
from meta_service.namespace.root import create_root
from meta_service.namespace.tree import Tree

SECOND = 1_000_000_000
START_NS = 1_700_000_000 * SECOND
TABLE = ChainTable(1, 1, tuple(ChainId(n) for n in range(1, 13)))
ROUTING = Routing(ClusterId(bytes(16)), epoch=1, version=1, tables=(TABLE,))

ROOT = (0, 0)
ALICE = (1000, 1000)
BOB = (1001, 1001)


class World:
    """Each call is one batch with one request, one second after the one before."""

    def __init__(self, engine: Engine | None = None, *, routing: Routing = ROUTING) -> None:
        self.engine: Engine = engine or MemoryEngine()
        self.routing = routing
        self.now_ns = START_NS
        self.dice = random.Random(7)
        self.numbers = InodeNumbers(self.engine)
        self.garbage_delay_ns = 0
        self.entries_checked_max = 1000
        self._requests: dict[int, int] = {}
        self.engine.transact(
            lambda t: create_root(t, self.inputs(), directory_layout(MIB, 4), 0o777)
        )

    def inputs(self) -> Inputs:
        return Inputs(
            now_ns=self.now_ns,
            dice=self.dice,
            next_inode=self.numbers.take,
            routing=self.routing,
            space=lambda: Space(1000, 600),
            garbage_delay_ns=self.garbage_delay_ns,
            entries_checked_max=self.entries_checked_max,
        )

    def caller(
        self, who: tuple[int, int] = ROOT, *, client: int = 1, groups: tuple[int, ...] = ()
    ) -> Caller:
        number = self._requests.get(client, 0) + 1
        self._requests[client] = number
        return Caller(*who, groups, client, RequestId(number), RequestId(number - 1))

    def batch(self, calls: Sequence[Call]) -> list[Reply]:
        self.now_ns += SECOND
        self.numbers.refill()
        inputs = self.inputs()
        return self.engine.transact(lambda t: run_batch(t, inputs, calls))

    def send(self, caller: Caller, request: wire.Request) -> Any:
        """The decoded reply to one request, or its error raised."""
        return decoded(request, self.batch([Call(caller, request)])[0])

    def call(
        self,
        request: wire.Request,
        who: tuple[int, int] = ROOT,
        *,
        client: int = 1,
        groups: tuple[int, ...] = (),
    ) -> Any:
        return self.send(self.caller(who, client=client, groups=groups), request)

    # The operations most tests need, on paths from the root.

    def mkdir(self, path: str, who: tuple[int, int] = ROOT, mode: int = 0o755) -> Inode:
        inode: Inode = self.call(wire.Mkdir(ROOT_INODE, path, mode), who)
        return inode

    def open(
        self,
        path: str,
        flags: int = os.O_RDONLY,
        who: tuple[int, int] = ROOT,
        *,
        mode: int = 0o644,
        client: int = 1,
    ) -> wire.Opened:
        request = wire.Open(ROOT_INODE, path, flags, mode)
        opened: wire.Opened = self.call(request, who, client=client)
        return opened

    def create(
        self,
        path: str,
        who: tuple[int, int] = ROOT,
        *,
        length: int | None = None,
        mode: int = 0o644,
    ) -> Inode:
        """A file that was written and closed."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        opened = self.open(path, flags, who, mode=mode)
        return self.close(opened, length=length)

    def close(self, opened: wire.Opened, *, length: int | None = None, client: int = 1) -> Inode:
        inode = opened.inode
        request = wire.Close(inode.id, opened.session, length, inode.truncate_version)
        closed: Inode = self.call(request, client=client)
        return closed

    def symlink(self, path: str, target: str, who: tuple[int, int] = ROOT) -> Inode:
        inode: Inode = self.call(wire.Symlink(ROOT_INODE, path, target), who)
        return inode

    def stat(self, path: str, who: tuple[int, int] = ROOT, *, follow: bool = False) -> Inode:
        inode: Inode = self.call(wire.Stat(ROOT_INODE, path, follow), who)
        return inode

    def names(self, path: str, who: tuple[int, int] = ROOT) -> list[str]:
        return [entry.name for entry in self.call(wire.List(ROOT_INODE, path), who).entries]

    def rename(self, path: str, new_path: str, who: tuple[int, int] = ROOT, flags: int = 0) -> None:
        self.call(wire.Rename(ROOT_INODE, path, ROOT_INODE, new_path, flags), who)

    def link(self, path: str, new_path: str, who: tuple[int, int] = ROOT) -> Inode:
        inode: Inode = self.call(wire.Link(ROOT_INODE, path, ROOT_INODE, new_path), who)
        return inode

    def remove(self, path: str, who: tuple[int, int] = ROOT, **options: Any) -> None:
        self.call(wire.Remove(ROOT_INODE, path, **options), who)

    def chmod(self, path: str, mode: int, who: tuple[int, int] = ROOT) -> Inode:
        inode: Inode = self.call(wire.SetAttributes(ROOT_INODE, path, mode=mode), who)
        return inode

    def chown(self, path: str, who: tuple[int, int]) -> Inode:
        request = wire.SetAttributes(ROOT_INODE, path, uid=who[0], gid=who[1])
        inode: Inode = self.call(request)
        return inode

    def find(self, inode: InodeId) -> Inode | None:
        return self.engine.transact(lambda t: Tree(t, self.inputs()).find(inode))

    def pairs(self, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return self.engine.transact(lambda t: t.scan(begin, end, limit=100_000))


def decoded(request: wire.Request, reply: Reply) -> Any:
    _, kind = wire.METHODS[wire.METHOD_OF[type(request)]]
    if reply.status:
        error = msgspec.msgpack.decode(reply.body, type=wire.ErrorBody)
        raise from_number(reply.status, error.message, errno=error.errno)
    return msgspec.msgpack.decode(reply.body, type=kind)
