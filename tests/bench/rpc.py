"""`./run bench rpc`: what a stat costs through fs3, against a unary gRPC call that does as little.

    single stat           fs.stat, one after the other; gRPC on one reused grpc.aio channel
    64 concurrent stats   64 at once: one fs.stat_many; 64 awaited gRPC calls

Ours is the whole way on a real cluster: Python client, fs3rpc, metadata service, its store. The
gRPC side carries the same msgpack bodies to a Python server that finds the inode in a dictionary.
The value is the CPU of all processes involved per call.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import msgspec

from deploy.local import MANAGER, LocalCluster
from fs3.client.connect import connect
from fs3.client.filesystem import FileSystem
from fs3.errors import Fs3Error
from fs3.ids import ROOT_INODE, InodeId, RequestId
from fs3.model.inode import Inode, Kind, Layout
from fs3.wire import metadata
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

_DIRECTORY: Final = "datasets/train"
_PATHS: Final = [f"{_DIRECTORY}/{number:06d}.jpg" for number in range(WIDTH)]
"""File i has i bytes, which is how a reply is known to be the right one."""

_GRPC_METHOD: Final = "/bench.Metadata/Stat"


class Side(Protocol):
    """One way of doing stats; both calls return lengths of files."""

    @property
    def processes(self) -> Sequence[int]:
        """Everything whose CPU a call costs."""

    def one_by_one(self, count: int) -> int:
        """`count` calls after each other; the last length."""

    def concurrently(self, rounds: int) -> Sequence[int]:
        """`rounds` times WIDTH calls at once; the last lengths."""


# ---- fs3


class ClusterSide:
    def __init__(self, fs: FileSystem, server: int) -> None:
        self.processes = (os.getpid(), server)
        self._fs = fs

    def one_by_one(self, count: int) -> int:
        for number in range(count):
            length = self._fs.stat(_PATHS[number % WIDTH]).st_size
        return length

    def concurrently(self, rounds: int) -> Sequence[int]:
        for _ in range(rounds):
            lengths = [_length(result) for result in self._fs.stat_many(_PATHS)]
        return lengths


def _length(result: os.stat_result | Fs3Error) -> int:
    if isinstance(result, Fs3Error):
        raise result
    return result.st_size


@contextmanager
def cluster_side() -> Iterator[Side]:
    with tempfile.TemporaryDirectory(prefix="fs3-bench-") as directory:
        cluster = LocalCluster(Path(directory) / "cluster", owner=os.getpid())
        cluster.up(nodes=1, replicas=1)
        try:
            with connect(cluster.url) as fs:
                fs.mkdir(_DIRECTORY, parents=True)
                for length, path in enumerate(_PATHS):
                    fs.write_bytes(path, bytes(length))
                yield ClusterSide(fs, cluster.process(MANAGER).pid)
        finally:
            cluster.down()


# ---- unary gRPC

Unary = Callable[[bytes], Awaitable[bytes]]


class GrpcSide:
    def __init__(self, loop: asyncio.AbstractEventLoop, call: Unary, server: int) -> None:
        self.processes = (os.getpid(), server)
        self._loop = loop
        self._call = call
        self._caller = metadata.Caller(1000, 1000, (1000,), 7, RequestId(1), RequestId(0))
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Inode).decode

    def one_by_one(self, count: int) -> int:
        async def calls() -> int:
            for number in range(count):
                length = await self._stat(_PATHS[number % WIDTH])
            return length

        return self._loop.run_until_complete(calls())

    def concurrently(self, rounds: int) -> Sequence[int]:
        async def calls() -> Sequence[int]:
            for _ in range(rounds):
                lengths = await asyncio.gather(*map(self._stat, _PATHS))
            return lengths

        return self._loop.run_until_complete(calls())

    async def _stat(self, path: str) -> int:
        request = self._encode((self._caller, metadata.Stat(ROOT_INODE, path)))
        return self._decode(await self._call(request)).length


@contextmanager
def grpc_side() -> Iterator[Side]:
    loop = asyncio.new_event_loop()
    with server_process("tests.bench.rpc", "--serve") as (pid, port):

        async def open_channel() -> grpc.aio.Channel:
            return grpc.aio.insecure_channel(f"127.0.0.1:{port}")

        channel = loop.run_until_complete(open_channel())
        try:
            yield GrpcSide(loop, channel.unary_unary(_GRPC_METHOD, None, None), pid)
        finally:
            loop.run_until_complete(channel.close(None))
            loop.close()


async def serve_grpc() -> None:
    layout = Layout(1, 1, 1 << 20, 4, 12345)
    inodes = {
        path: Inode(InodeId(2 + i), Kind.FILE, 0o644, 0, 0, 1, length=i, layout=layout)
        for i, path in enumerate(_PATHS)
    }
    decode = msgspec.msgpack.Decoder(tuple[metadata.Caller, metadata.Stat]).decode
    encode = msgspec.msgpack.Encoder().encode

    async def stat(body: bytes, _context: Any) -> bytes:
        return encode(inodes[decode(body)[1].path])

    server = grpc.aio.server()
    service, method = _GRPC_METHOD.strip("/").split("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(stat)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    announce(port)
    await asyncio.get_running_loop().run_in_executor(None, until_parent_ends)
    await server.stop(None)


# ---- measurement


def measure(options: Options) -> Iterator[Row]:
    calls = 640 if options.quick else 3_200
    rounds = 30 if options.quick else 150
    works: dict[str, tuple[Callable[[Side], object], int]] = {
        SINGLE: (lambda side: side.one_by_one(calls), calls),
        CONCURRENT: (lambda side: side.concurrently(rounds), rounds * WIDTH),
    }
    with ExitStack() as stack:
        ours = stack.enter_context(cluster_side())
        reference = stack.enter_context(grpc_side())
        verified = is_right(ours) and is_right(reference)  # and warms both up
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


def is_right(side: Side) -> bool:
    """Whether both ways of calling return the lengths of the files that were asked for."""
    singles = [side.one_by_one(count) for count in (1, 10, WIDTH)]
    return singles == [0, 9, WIDTH - 1] and list(side.concurrently(3)) == list(range(WIDTH))


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        asyncio.run(serve_grpc())
    else:
        sys.exit(main("rpc", (SINGLE, CONCURRENT), measure))
