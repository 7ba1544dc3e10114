"""`./run bench rpc`: what a metadata call costs over fs3rpc, against unary gRPC.

Both sides do the same work for the same msgpack bodies: the client encodes a stat request and
decodes the inode; a Python server process decodes the request, looks the path up and encodes the
answer. Only the way between them differs. The value is the CPU of both processes per call.

    single stat           one call after the other; gRPC on one reused grpc.aio channel
    64 concurrent stats   64 at once: one call_many, as `stat_many` does; 64 awaited gRPC calls

A `Side` is all that the measurement knows, so that the whole client and metadata service can be
measured by the same code.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import msgspec

from fs3 import _native
from fs3.ids import ROOT_INODE, RequestId, new_incarnation
from fs3.model.inode import Inode, Kind, Layout
from fs3.wire import metadata
from fs3.wire.frame import PeerKind
from tests.bench.harness import (
    Options,
    Row,
    Sample,
    announce,
    in_turn,
    main,
    measured,
    server_process,
    until_parent_ends,
)

SINGLE: Final = "single stat"
CONCURRENT: Final = "64 concurrent stats"
WIDTH: Final = 64
FILES: Final = 10_000

_MODULE: Final = "tests.bench.rpc"
_CLUSTER: Final = b"bench rpc bench "
_STAT: Final = metadata.METHOD_OF[metadata.Stat]
_GRPC_METHOD: Final = "/bench.Metadata/Stat"
_TIMEOUT_S: Final = 30.0

# ---- the work, the same on both ways


def path_of(number: int) -> str:
    return f"datasets/images/train/{number % FILES:06d}.jpg"


class StatHandler:
    """A namespace of FILES files in a dictionary, and one operation on it."""

    def __init__(self) -> None:
        layout = Layout(1, 1, 1 << 20, 4, 12345)
        self._inodes = {
            path_of(i): Inode(1000 + i, Kind.FILE, 0o644, 1000, 1000, 1, 4096, layout=layout)  # type: ignore[arg-type]
            for i in range(FILES)
        }
        self._decode = msgspec.msgpack.Decoder(tuple[metadata.Caller, metadata.Stat]).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def __call__(self, body: bytes) -> bytes:
        _, request = self._decode(body)
        return self._encode(self._inodes[request.path])


class StatCoder:
    """The client's half: requests out, inodes in."""

    def __init__(self) -> None:
        self._caller = metadata.Caller(1000, 1000, (1000,), 7, RequestId(1), RequestId(0))
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Inode).decode

    def request(self, number: int) -> bytes:
        return self._encode((self._caller, metadata.Stat(ROOT_INODE, path_of(number))))

    def inode(self, body: bytes | str) -> Inode:
        assert isinstance(body, bytes), body
        return self._decode(body)


class Side(Protocol):
    """One way of doing stats."""

    @property
    def processes(self) -> Sequence[int]:
        """Everything whose CPU a call costs."""

    def one_by_one(self, count: int) -> Inode:
        """`count` calls after each other; the last inode."""

    def concurrently(self, rounds: int) -> Sequence[Inode]:
        """`rounds` times WIDTH calls at once; the last inodes."""


# ---- fs3rpc


class Fs3RpcSide:
    def __init__(self, port: int, server: int) -> None:
        self.processes = (os.getpid(), server)
        self._coder = StatCoder()
        self.channel = _native.RpcChannel(
            "127.0.0.1",
            port,
            cluster_id=_CLUSTER,
            incarnation=new_incarnation(),
            connect_timeout_s=5,
        )

    def one_by_one(self, count: int) -> Inode:
        coder, call = self._coder, self.channel.call
        for number in range(count):
            _, body = call(_STAT, coder.request(number), _TIMEOUT_S)
            inode = coder.inode(body)
        return inode

    def concurrently(self, rounds: int) -> Sequence[Inode]:
        coder, call_many = self._coder, self.channel.call_many
        for _ in range(rounds):
            requests = [(_STAT, coder.request(number)) for number in range(WIDTH)]
            inodes = [coder.inode(body) for _, body in call_many(requests, _TIMEOUT_S)]
        return inodes


@contextmanager
def fs3rpc_side() -> Iterator[Side]:
    with server_process(_MODULE, "--serve", "fs3rpc") as (pid, port):
        side = Fs3RpcSide(port, pid)
        try:
            yield side
        finally:
            side.channel.close()


def serve_fs3rpc() -> None:
    handle = StatHandler()
    server = _native.RpcServer(
        "127.0.0.1", 0, cluster_id=_CLUSTER, node_id=1, incarnation=1, kind=PeerKind.META
    )
    stop = threading.Event()

    def close_with_parent() -> None:
        until_parent_ends()
        stop.set()
        server.close()

    threading.Thread(target=close_with_parent).start()
    announce(server.port)
    while not stop.is_set():
        requests = server.poll(256, 1.0)
        server.reply([(request[0], request[1], 0, handle(request[3])) for request in requests])


# ---- unary gRPC

Unary = Callable[[bytes], Awaitable[bytes]]


class GrpcSide:
    def __init__(self, loop: asyncio.AbstractEventLoop, stat: Unary, server: int) -> None:
        self.processes = (os.getpid(), server)
        self._coder = StatCoder()
        self._loop = loop
        self._stat = stat

    def one_by_one(self, count: int) -> Inode:
        async def calls() -> Inode:
            for number in range(count):
                inode = self._coder.inode(await self._stat(self._coder.request(number)))
            return inode

        return self._loop.run_until_complete(calls())

    def concurrently(self, rounds: int) -> Sequence[Inode]:
        async def stat(number: int) -> Inode:
            return self._coder.inode(await self._stat(self._coder.request(number)))

        async def calls() -> Sequence[Inode]:
            for _ in range(rounds):
                inodes = await asyncio.gather(*(stat(number) for number in range(WIDTH)))
            return inodes

        return self._loop.run_until_complete(calls())


@contextmanager
def grpc_side() -> Iterator[Side]:
    loop = asyncio.new_event_loop()
    with server_process(_MODULE, "--serve", "grpc") as (pid, port):

        async def open_channel() -> grpc.aio.Channel:
            return grpc.aio.insecure_channel(f"127.0.0.1:{port}")

        channel = loop.run_until_complete(open_channel())
        try:
            yield GrpcSide(loop, channel.unary_unary(_GRPC_METHOD, None, None), pid)
        finally:
            loop.run_until_complete(channel.close(None))
            loop.close()


def serve_grpc() -> None:
    handle = StatHandler()

    async def stat(body: bytes, _context: Any) -> bytes:
        return handle(body)

    async def serve() -> None:
        server = grpc.aio.server()
        handlers = {"Stat": grpc.unary_unary_rpc_method_handler(stat)}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("bench.Metadata", handlers),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        announce(port)
        await asyncio.get_running_loop().run_in_executor(None, until_parent_ends)
        await server.stop(None)

    asyncio.run(serve())


# ---- measurement


def measure(options: Options) -> Iterator[Row]:
    calls = 500 if options.quick else 3_000
    rounds = 20 if options.quick else 100
    with ExitStack() as stack:
        ours = stack.enter_context(fs3rpc_side())
        reference = stack.enter_context(grpc_side())
        verified = verify(ours) and verify(reference)  # and warms both up
        works: dict[str, tuple[Callable[[Side], object], int]] = {
            SINGLE: (lambda side: side.one_by_one(calls), calls),
            CONCURRENT: (lambda side: side.concurrently(rounds), rounds * WIDTH),
        }
        for name, (work, count) in works.items():
            if options.wants(name):
                ours_taken, reference_taken = in_turn(
                    options.samples,
                    partial(cost, ours, work, count),
                    partial(cost, reference, work, count),
                )
                yield Row(
                    name,
                    "us of CPU per call",
                    ours_taken,
                    "unary gRPC",
                    reference_taken,
                    higher_is_better=False,
                    verified=verified,
                )


def cost(side: Side, work: Callable[[Side], object], calls: int) -> Sample:
    """CPU of one call, in microseconds, over all processes of the side."""
    cpu_us = measured(lambda: work(side), side.processes).cpu_us_per(calls)
    return Sample(cpu_us, cpu_us)


def verify(side: Side) -> bool:
    """Whether both ways of calling return the right inodes."""
    expected = [1000 + number for number in range(WIDTH)]
    single = side.one_by_one(50)
    many = side.concurrently(3)
    return single.id == 1049 and [inode.id for inode in many] == expected


SERVERS: Final = {"fs3rpc": serve_fs3rpc, "grpc": serve_grpc}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        SERVERS[sys.argv[2]]()
    else:
        sys.exit(main("rpc", (SINGLE, CONCURRENT), measure))
