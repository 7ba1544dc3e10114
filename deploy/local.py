"""A cluster on one machine: `python -m deploy.local up|down`, and the object that tests drive.

    DIR/cluster.json     what was asked for, the URL, and the processes (fs3.config.cluster)
    DIR/lock             held while `up` or `down` works
    DIR/config/          the settings of each daemon, written anew by each `up`
    DIR/log/             what each daemon says
    DIR/meta/            the metadata store
    DIR/node-N/          a storage node

`up` on a running cluster changes nothing; on a stopped one it starts it again with its data, on the
same ports where they are free. Everything listens on 127.0.0.1 only.
"""

import argparse
import contextlib
import fcntl
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from deploy import processes
from fs3.config import toml
from fs3.config.cluster import (
    CLUSTER_FILE,
    ClusterFile,
    Process,
    parse_url,
    read_cluster_file,
)
from fs3.config.manager import FormationConfig, ManagerConfig
from fs3.config.storage import StorageConfig
from fs3.errors import Busy, Fs3Error, InvalidArgument, NoSpace, NotFound, Unavailable, from_errno
from fs3.units import MIB, format_bytes

HOST: Final = "127.0.0.1"
MANAGER: Final = "manager"
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.02
FREE_BYTES_MIN: Final = 256 * MIB
OWN_NAMES: Final = frozenset({CLUSTER_FILE, "lock", "connect.lock", "config", "log"})
"""What a directory may hold before a cluster is made in it."""


class Programs(NamedTuple):
    manager: str = "meta_service"
    node: str = "storage_node"


class LocalCluster:
    """The cluster in `directory`; `up` makes or starts it.

    Args:
        directory: absolute path.
        owner: pid of a process that the daemons must not outlive, None for real daemons.
        programs: modules that are run; tests give fakes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        owner: int | None = None,
        programs: Programs = Programs(),  # noqa: B008 (a value)
    ) -> None:
        self.directory = directory
        self._owner = owner
        self._programs = programs

    @property
    def file(self) -> ClusterFile:
        """What is written about the cluster now. Raises NotFound when there is none."""
        return read_cluster_file(self.directory)

    @property
    def url(self) -> str:
        return self.file.url

    def up(
        self,
        *,
        nodes: int | None = None,
        replicas: int | None = None,
        chains: int | None = None,
        port: int | None = None,
    ) -> ClusterFile:
        """Starts what does not run, and waits until the cluster is healthy and writable.

        Args:
            nodes, replicas, chains: of a new cluster (3, 2 and a multiple that fits); of an
                existing one they may only repeat what it has.
            port: of the cluster manager; by default the one it had, else any free one.

        Raises:
            InvalidArgument: the directory holds something else, or an existing cluster differs.
            Busy: the wanted port is in use, or another `up` or `down` works on the directory.
            PermissionDenied, NoSpace: the directory cannot be written.
            Unavailable: a daemon ended, or the cluster did not become healthy in time.
        """
        self._prepare_directory()
        with self._locked():
            file = self._file_or_new(nodes, replicas, chains)
            stopped = [p for p in file.processes if not processes.is_running(p)]
            if any(p.name == MANAGER for p in stopped):
                file = msgspec.structs.replace(file, url=self._choose_url(file.url, port))
            elif port not in (None, parse_url(file.url).port):
                raise InvalidArgument(
                    f"the cluster runs at {file.url}; `fs3 down` before it can move to port {port}"
                )
            self._write_settings(file)
            self._start(file, [p.name for p in stopped])
        return self.file

    def down(self) -> list[str]:
        """Stops every daemon; the names of those that ran.

        Raises:
            NotFound: there is no cluster in the directory.
            Busy: another `up` or `down` works on it.
            PermissionDenied: it belongs to another user.
        """
        file = self.file
        with self._locked():
            running = [p for p in file.processes if processes.is_running(p)]
            # The manager first, so that it does not take the stop for a failure of every node.
            for process in sorted(running, key=lambda p: p.name != MANAGER):
                self._signal(process, signal.SIGTERM)
            for process in processes.wait_ended(running, STOP_TIMEOUT_S):
                self._signal(process, signal.SIGKILL)
            processes.wait_ended(running, STOP_TIMEOUT_S)
        return [process.name for process in running]

    def kill(self, *names: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signals daemons at once, all of them by default; for tests of failure."""
        for process in self.file.processes:
            if not names or process.name in names:
                processes.send(process, number)

    def start(self, *names: str) -> None:
        """Starts stopped daemons again without waiting; for tests of failure."""
        file = self.file
        self.spawn(file, [p.name for p in file.processes if p.name in names])

    def process(self, name: str) -> Process:
        return next(p for p in self.file.processes if p.name == name)

    def log(self, name: str) -> Path:
        return self.directory / "log" / f"{name}.log"

    # up, step by step

    def _prepare_directory(self) -> None:
        with _typed_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            foreign = {p.name for p in self.directory.iterdir()} - OWN_NAMES
            is_ours = (self.directory / CLUSTER_FILE).exists()
            if foreign and not is_ours:
                raise InvalidArgument(
                    f"{self.directory} holds other files ({min(foreign)}) and no cluster; choose "
                    "an empty --dir"
                )
            if not os.access(self.directory, os.W_OK):
                raise PermissionError(13, "")
            space = os.statvfs(self.directory)
        free = space.f_bavail * space.f_frsize
        if free < FREE_BYTES_MIN and not is_ours:  # a full cluster must start, to be emptied
            raise NoSpace(
                f"{self.directory} has {format_bytes(free)} free and a cluster needs at least "
                f"{format_bytes(FREE_BYTES_MIN)}; make room, or choose another --dir"
            )

    def _file_or_new(
        self, nodes: int | None, replicas: int | None, chains: int | None
    ) -> ClusterFile:
        try:
            file = self.file
        except NotFound:
            return _new_file(nodes or 3, replicas, chains)
        for what, asked, has in (
            ("nodes", nodes, file.nodes),
            ("replicas", replicas, file.replicas),
            ("chains", chains, file.chains),
        ):
            if asked not in (None, has):
                raise InvalidArgument(
                    f"the cluster in {self.directory} has {has} {what}, not {asked}; leave "
                    f"--{what} out, or choose another --dir"
                )
        return file

    def _choose_url(self, known: str, port: int | None) -> str:
        if port is not None:
            if not _is_free(port):
                raise Busy(f"port {port} on {HOST} is in use; leave --port out to take a free one")
            return f"fs3://{HOST}:{port}"
        had = parse_url(known).port if known else 0
        return f"fs3://{HOST}:{had if had and _is_free(had) else free_port()}"

    def _write_settings(self, file: ClusterFile) -> None:
        with _typed_errors(self.directory):
            for name in ("config", "log"):
                (self.directory / name).mkdir(exist_ok=True)
            for process in file.processes:
                path = self._configuration(process.name)
                path.write_text(toml.dump(self._settings(file, process.name)))

    def _settings(self, file: ClusterFile, name: str) -> ManagerConfig | StorageConfig:
        if name == MANAGER:
            return ManagerConfig(
                directory=str(self.directory / "meta"),
                host=HOST,
                port=parse_url(file.url).port,
                formation=FormationConfig(
                    nodes=file.nodes, replicas=file.replicas, chains=file.chains
                ),
            )
        return StorageConfig(
            manager=file.url,
            directory=str(self.directory / name),
            node_id=int(name.removeprefix("node-")),
            targets_per_disk=-(-file.chains * file.replicas // file.nodes),
            host=HOST,
        )

    def _start(self, file: ClusterFile, names: Sequence[str]) -> None:
        waiter = _Waiter(self, file)
        waiter.start(names)
        try:
            waiter.wait()
        except Fs3Error:
            started = waiter.started()
            for process in started:
                self._signal(process, signal.SIGKILL)
            processes.wait_ended(started, STOP_TIMEOUT_S)
            raise

    def spawn(self, file: ClusterFile, names: Sequence[str]) -> ClusterFile:
        """Starts these daemons without waiting; the cluster file with their processes."""
        started = {
            name: processes.start(
                name,
                self._programs.manager if name == MANAGER else self._programs.node,
                self._configuration(name),
                self.log(name),
                owner=self._owner,
            )
            for name in names
        }
        file = msgspec.structs.replace(
            file, processes=tuple(started.get(p.name, p) for p in file.processes)
        )
        self._save(file)
        return file

    def _save(self, file: ClusterFile) -> None:
        path = self.directory / CLUSTER_FILE
        temporary = path.with_name(path.name + ".new")
        with _typed_errors(path):
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")
            temporary.replace(path)

    def _configuration(self, name: str) -> Path:
        return self.directory / "config" / f"{name}.toml"

    def _signal(self, process: Process, number: signal.Signals) -> None:
        with _typed_errors(self.directory):
            processes.send(process, number)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _typed_errors(self.directory):
            descriptor = os.open(
                self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise Busy(f"another `fs3 up` or `fs3 down` works on {self.directory}")
                time.sleep(POLL_S)
            yield
        finally:
            os.close(descriptor)


class _Waiter:
    """Waits until a cluster is healthy. A daemon that it started and that ends meanwhile ends the
    wait with its last line; one that ran before and ends now (it was just being killed) is started.
    """

    def __init__(self, cluster: LocalCluster, file: ClusterFile) -> None:
        self._cluster = cluster
        self._file = file
        self._log_sizes: dict[str, int] = {}

    def start(self, names: Sequence[str]) -> None:
        self._log_sizes |= {name: _size(self._cluster.log(name)) for name in names}
        self._file = self._cluster.spawn(self._file, names)

    def started(self) -> list[Process]:
        return [p for p in self._file.processes if p.name in self._log_sizes]

    def wait(self) -> None:
        # Imported while the daemons start, not before.
        import grpc

        from fs3.runtime import control
        from fs3.wire.proto import admin_pb2, admin_pb2_grpc

        deadline = time.monotonic() + START_TIMEOUT_S
        with control.open_channel(parse_url(self._file.url)) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            while time.monotonic() < deadline:
                self._check_running()
                with contextlib.suppress(grpc.RpcError):
                    status = stub.GetStatus(admin_pb2.GetStatusRequest(), timeout=1.0)
                    applied = sum(node.routing_applied for node in status.nodes if node.targets)
                    is_up = status.healthy and status.writable and applied == self._file.nodes
                    if is_up and not self._check_running():
                        return
                time.sleep(POLL_S)
        raise Unavailable(
            f"the cluster did not become healthy within {START_TIMEOUT_S:g} s; "
            f"logs are in {self._cluster.directory / 'log'}"
        )

    def _check_running(self) -> bool:
        """Starts what has just ended; whether there was something."""
        ended = [p.name for p in self._file.processes if not processes.is_running(p)]
        for name in ended:
            if name in self._log_sizes:
                log = self._cluster.log(name)
                said = processes.last_line(log, self._log_sizes[name])
                raise Unavailable(f"{name} did not start: {said or f'see {log}'}")
        if ended:
            self.start(ended)
        return bool(ended)


def _new_file(nodes: int, replicas: int | None, chains: int | None) -> ClusterFile:
    replicas = min(2, nodes) if replicas is None else replicas
    if nodes < 1 or not 1 <= replicas <= nodes:
        raise InvalidArgument(f"{replicas} replicas on {nodes} nodes: need 1 <= replicas <= nodes")
    names = [MANAGER, *(f"node-{number}" for number in range(1, nodes + 1))]
    return ClusterFile(
        url="",
        nodes=nodes,
        replicas=replicas,
        chains=4 * nodes if chains is None else chains,
        processes=tuple(Process(name) for name in names),
    )


def free_port() -> int:
    """A port that is free now, below the range that outgoing connections take theirs from, so that
    it is most likely still free when the cluster is started again."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    dice = random.SystemRandom()
    for _ in range(100):
        port = dice.randrange(15_000, max(low, 16_000))
        if _is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def _typed_errors(path: Path) -> Iterator[None]:
    """Failures of the operating system as typed errors with a remedy."""
    try:
        yield
    except Fs3Error:
        raise
    except PermissionError as error:
        raise from_errno(
            error.errno or 13, f"{path} (another user's, or read-only: choose another --dir)"
        ) from None
    except OSError as error:
        raise from_errno(error.errno or 5, f"{path} (choose another --dir)") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m deploy.local`; 0 good, 1 not healthy, 2 could not run."""
    options = _parser().parse_args(arguments)
    cluster = LocalCluster(options.dir.expanduser().absolute(), owner=options.owner)
    try:
        if options.word == "down":
            stopped = cluster.down()
            print(f"stopped {len(stopped)} processes" if stopped else "nothing was running")
            return 0
        began = time.monotonic()
        file = cluster.up(
            nodes=options.nodes, replicas=options.replicas, chains=options.chains, port=options.port
        )
    except Fs3Error as error:
        print(f"fs3 {options.word}: {error}", file=sys.stderr)
        return 2
    _say_up(cluster, file, time.monotonic() - began, as_json=options.json)
    return 0


def _say_up(cluster: LocalCluster, file: ClusterFile, seconds: float, *, as_json: bool) -> None:
    if as_json:
        said = {"url": file.url, "directory": str(cluster.directory), "healthy": True}
        sizes = {"nodes": file.nodes, "replicas": file.replicas, "chains": file.chains}
        print(msgspec.json.encode(said | sizes).decode())
        return
    print(
        f"{file.url} is up after {seconds:.1f} s: {file.nodes} nodes, {file.chains} chains of "
        f"{file.replicas} replicas, in {cluster.directory}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    parser.add_argument("word", choices=["up", "down"])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--replicas", type=int)
    parser.add_argument("--chains", type=int)
    parser.add_argument("--port", type=int)
    parser.add_argument("--owner", type=int, help="daemons stop when this process ends")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
