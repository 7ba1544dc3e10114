"""`./run bench io`: chunk IO through the native client, against what the machine can do.

    sequential read 1 MiB tcp    requests of 1 MiB, several in flight, one replica, data in memory;
    sequential write 1 MiB tcp   the reference is a bare loopback TCP copy between two processes
    random read 4 KiB batched    10,000 random reads in one call; the reference is the same client
                                 reading one by one
    two-replica write            1 MiB writes to a chain of two; the reference is a chain of one

Servers are processes of their own; their data lies on /dev/shm. Bytes are compared outside the
timed part.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fs3._native import IO_REQUEST, IoClient, StorageServer
from fs3.ids import ClusterId, NodeId, new_cluster_id, new_incarnation, target_id
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

READ: Final = "sequential read 1 MiB tcp"
WRITE: Final = "sequential write 1 MiB tcp"
RANDOM: Final = "random read 4 KiB batched"
REPLICATED: Final = "two-replica write"
ROW_NAMES: Final = (READ, WRITE, RANDOM, REPLICATED)

MIB: Final = 1 << 20
WINDOW: Final = 4
"""Requests of 1 MiB in flight."""

_CHUNK: Final = MIB
_BATCH: Final = 10_000
_ONE_BY_ONE: Final = 2_000
_SMALL: Final = 4096
_TIMEOUT_S: Final = 30.0
_GENERATION: Final = 1
_SERVING: Final = 1
_CHAIN: Final = 1

Bytes = npt.NDArray[np.uint8]
Member = tuple[int, int, int, str, int]


def requests(rows: Sequence[tuple[int, int, int, int]]) -> npt.NDArray[np.void]:
    """IO_REQUESTs of (handle, file offset, length, buffer offset)."""
    array = np.zeros(len(rows), dtype=IO_REQUEST)
    if len(rows):
        columns = np.asarray(rows, dtype=np.uint64).T
        for name, column in zip(
            ("handle", "file_offset", "length", "buffer_offset"), columns, strict=True
        ):
            array[name] = column
    return array


class Volume:
    """A file on a chain of storage server processes, and a client that has it open."""

    def __init__(self, cluster: ClusterId, pids: Sequence[int], members: Sequence[Member]) -> None:
        self.processes = (os.getpid(), *pids)
        self._client = IoClient(cluster_id=cluster, incarnation=new_incarnation())
        self._client.set_routing([(_CHAIN, 1, members)])
        self._inode = 100
        self.handle = self.new_file()

    def new_file(self, length: int = 0) -> int:
        self._inode += 1
        self.handle = self._client.open_file(self._inode, _CHUNK, [_CHAIN], length, 0)
        return self.handle

    def stream(self, operation: str, memory: Bytes, offset: int) -> None:
        """Moves `memory` in requests of 1 MiB, WINDOW of them in flight."""
        submit = getattr(self._client, f"submit_{operation}")
        total = len(memory) // MIB
        begun = done = 0
        while done < total:
            while begun < total and begun - done < WINDOW:
                at = begun * MIB
                row = requests([(self.handle, offset + at, MIB, at)])
                submit(row, memory, _TIMEOUT_S)
                begun += 1
            for _, results in self._client.completed(_TIMEOUT_S):
                check(results)
                done += 1

    def read(self, array: npt.NDArray[np.void], into: Bytes) -> None:
        check(self._client.read(array, into, _TIMEOUT_S))

    def remove(self) -> None:
        code, _ = self._client.remove(self.handle, 1, _TIMEOUT_S)
        if code:
            raise RuntimeError(f"removing the file failed with code {code}")

    def close(self) -> None:
        self._client.close()


def check(results: npt.NDArray[np.void]) -> None:
    failed = results[results["code"] != 0]
    if len(failed):
        raise RuntimeError(f"an operation failed with code {failed[0]['code']}")


# ---- servers


def serve(cluster: str, node: str, directory: str, successors: str) -> None:
    """A storage server process: one target in a chain of which it knows those behind itself."""
    number = int(node)
    server = StorageServer(
        cluster_id=bytes.fromhex(cluster), node_id=number, incarnation=new_incarnation()
    )
    target = node_target(number)
    server.add_target(target, _GENERATION, directory, create=True)
    before = [member(n, "127.0.0.1", 0) for n in range(1, number)]  # it never calls these
    own = member(number, *server.target_endpoint(target))
    behind = [member(*address) for address in json.loads(successors)]
    server.set_chain(target, _CHAIN, 1, [*before, own, *behind])
    announce(server.target_endpoint(target))
    until_parent_ends()
    server.stop()


def node_target(node: int) -> int:
    return target_id(NodeId(node), 0, 0)


def member(node: int, host: str, port: int) -> Member:
    return node_target(node), _GENERATION, _SERVING, host, port


@contextmanager
def volume(replicas: int) -> Iterator[Volume]:
    """Starts the chain from its tail, since a member calls those behind it."""
    cluster = new_cluster_id()
    with ExitStack() as stack:
        root = tempfile.mkdtemp(prefix="fs3-bench-", dir=memory_directory())
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        addresses: list[tuple[int, str, int]] = []
        pids = []
        for node in range(replicas, 0, -1):
            arguments = ("serve", cluster.hex(), str(node), f"{root}/{node}", json.dumps(addresses))
            pid, (host, port) = stack.enter_context(server_process("tests.bench.io", *arguments))
            addresses.insert(0, (node, host, port))
            pids.append(pid)
        opened = Volume(cluster, pids, [member(*address) for address in addresses])
        stack.callback(opened.close)
        yield opened


def memory_directory() -> str:
    """Where data lies in memory, else the default for temporary files."""
    shared = Path("/dev/shm")
    needed = 4 << 30
    fits = shared.is_dir() and shutil.disk_usage(shared).free > needed
    return str(shared) if fits else tempfile.gettempdir()


# ---- references


def loopback_copy(seconds: float) -> Sample:
    """The committed C++ program, built by `./run bench`."""
    found = sorted(Path("build").glob("*/tests/bench/loopback_copy"), key=os.path.getmtime)
    if not found:
        raise RuntimeError("the reference is not built; start the benchmark by ./run bench io")
    output = subprocess.check_output([found[-1], str(seconds)], text=True)
    measured_copy = json.loads(output)
    return Sample(measured_copy["mib_per_s"], measured_copy["cpu_ms_per_mib"] * 1000)


# ---- rows


def measure(options: Options) -> Iterator[Row]:
    size_mib = 256 if options.quick else 1024
    data = np.random.default_rng(1).integers(0, 256, size_mib * MIB, dtype=np.uint8)
    into = np.zeros_like(data)
    if options.wants(READ) or options.wants(RANDOM):
        with volume(1) as one:
            one.stream("write", data, 0)
            if options.wants(READ):
                yield sequential_read(options, one, data, into)
            if options.wants(RANDOM):
                yield random_read(options, one, data)
    if options.wants(WRITE):
        with volume(1) as one:
            yield sequential_write(options, one, data, into)
    if options.wants(REPLICATED):
        with volume(1) as one, volume(2) as two:
            yield replicated_write(options, two, one, data, into)


def throughput(used: Any, size: int) -> Sample:
    return Sample(size / MIB / used.seconds, used.cpu_us_per(size / MIB))


def sequential_read(options: Options, one: Volume, data: Bytes, into: Bytes) -> Row:
    def ours() -> Sample:
        return throughput(measured(lambda: one.stream("read", into, 0), one.processes), len(into))

    samples, reference = in_turn(options.samples, ours, lambda: loopback_copy(1.0))
    verified = np.array_equal(data, into)
    return Row(READ, "MiB/s", samples, "loopback copy", reference, verified=verified)


def write_sample(volume: Volume, data: Bytes) -> Sample:
    """Writes a new file; the one before is removed first, so that space does not run out.

    An unmeasured pass comes first: on a virtual machine the host takes back memory that was free
    for a second, and faulting it in again costs several times what the write does.
    """
    for _ in range(2):
        volume.remove()
        volume.new_file()
        used = measured(lambda: volume.stream("write", data, 0), volume.processes)
    return throughput(used, len(data))


def reads_back(volume: Volume, data: Bytes, into: Bytes) -> bool:
    into.fill(0)
    volume.stream("read", into, 0)
    return bool(np.array_equal(data, into))


def sequential_write(options: Options, one: Volume, data: Bytes, into: Bytes) -> Row:
    samples, reference = in_turn(
        options.samples, lambda: write_sample(one, data), lambda: loopback_copy(1.0)
    )
    verified = reads_back(one, data, into)
    return Row(WRITE, "MiB/s", samples, "loopback copy", reference, verified=verified)


def random_read(options: Options, one: Volume, data: Bytes) -> Row:
    random = np.random.default_rng(2)
    offsets = random.integers(0, len(data) - _SMALL, _BATCH)
    into = np.zeros((_BATCH, _SMALL), dtype=np.uint8)
    batch = requests([(one.handle, at, _SMALL, i * _SMALL) for i, at in enumerate(offsets)])
    singles = [requests([(one.handle, at, _SMALL, 0)]) for at in offsets[:_ONE_BY_ONE]]
    place = np.zeros(_SMALL, dtype=np.uint8)

    def batched() -> Sample:
        used = measured(lambda: one.read(batch, into.reshape(-1)), one.processes)
        return Sample(_BATCH / used.seconds, used.cpu_us_per(_BATCH))

    def one_by_one() -> Sample:
        def work() -> None:
            for single in singles:
                one.read(single, place)

        used = measured(work, one.processes)
        return Sample(_ONE_BY_ONE / used.seconds, used.cpu_us_per(_ONE_BY_ONE))

    samples, reference = in_turn(options.samples, batched, one_by_one)
    expected = np.stack([data[at : at + _SMALL] for at in offsets])
    verified = bool(np.array_equal(into, expected))
    return Row(RANDOM, "reads/s", samples, "one by one", reference, verified=verified)


def replicated_write(options: Options, two: Volume, one: Volume, data: Bytes, into: Bytes) -> Row:
    samples, reference = in_turn(
        options.samples, lambda: write_sample(two, data), lambda: write_sample(one, data)
    )
    verified = reads_back(two, data, into)
    return Row(REPLICATED, "MiB/s", samples, "one replica", reference, verified=verified)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
    else:
        sys.exit(main("io", ROW_NAMES, measure))
