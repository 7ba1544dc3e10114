"""Finding the cluster, and the one-liner `fs3.connect()`.

A URL or a directory that somebody named is used or refused; nothing is started. Only when nothing
is named and no scheduler's environment is seen, a local cluster is started in the default
directory, with a warning: that is a laptop or a notebook, where a first try must work.
"""

import fcntl
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fs3.client import fork
from fs3.client.connection import Connection
from fs3.client.filesystem import FileSystem
from fs3.client.follower import RoutingFollower
from fs3.client.metadata import Identity, MetadataClient
from fs3.client.ports import Channel
from fs3.client.routing import ManagerLink
from fs3.config.client import ClientConfig, Location
from fs3.config.cluster import CLUSTER_FILE, Endpoint, parse_url, read_cluster_file
from fs3.errors import NotFound, Unavailable
from fs3.ids import Incarnation, new_incarnation
from fs3.model.routing import Routing

if TYPE_CHECKING:
    from fs3.client.aio import AsyncFileSystem

_START_TIMEOUT_S: Final = 60.0
_PROBE_TIMEOUT_S: Final = 1.0

_newest: Final[dict[str, Routing]] = {}
"""By URL, the routing a forked child starts from."""


def connect(
    url: str | None = None,
    *,
    directory: str | os.PathLike[str] | None = None,
    start: bool = True,
    config: ClientConfig | None = None,
) -> FileSystem:
    """A file system on the cluster that the arguments or the environment name.

        with fs3.connect() as fs:
            fs.write_bytes("/hello", b"world")

    Args:
        url: `fs3://host:port` of the cluster manager; by default `FS3_URL`.
        directory: of a local cluster; by default `FS3_DIR`, else `~/.local/share/fs3`.
        start: start a local cluster when nothing at all is configured.
        config: limits of the client.

    Raises:
        NotFound: no cluster is configured or running, and none may be started.
        Unavailable: it does not answer.
        VersionMismatch: it speaks another protocol version.
        InvalidArgument: the URL is not one.
    """
    location = Location.from_environment(url, directory)
    opener = ClusterOpener(_cluster_url(location, start), config or ClientConfig())
    filesystem = FileSystem(opener, opener.url)
    _ = filesystem.config  # connects now, so that errors appear here
    return filesystem


async def connect_async(
    url: str | None = None,
    *,
    directory: str | os.PathLike[str] | None = None,
    start: bool = True,
    config: ClientConfig | None = None,
) -> "AsyncFileSystem":
    """As `connect`, for asyncio."""
    import asyncio

    filesystem = await asyncio.to_thread(
        connect, url, directory=directory, start=start, config=config
    )
    return filesystem.aio


@dataclass(frozen=True)
class ClusterOpener:
    """Connects to a cluster; picklable, and called again in each forked child."""

    url: str
    config: ClientConfig

    def __call__(self) -> Connection:
        from fs3._native import IoClient, RpcChannel

        incarnation = new_incarnation()
        manager = self._link(incarnation)
        routing = manager.start(self.config.connect_deadline_s)
        manager.subscribe(lambda newest: _newest.__setitem__(self.url, newest))
        data = IoClient(cluster_id=routing.cluster_id, incarnation=incarnation)
        manager.subscribe(lambda newest: data.set_routing(_chains(newest)))

        def dial(endpoint: Endpoint) -> Channel:
            return RpcChannel(
                endpoint.host,
                endpoint.port,
                cluster_id=routing.cluster_id,
                incarnation=incarnation,
                connect_timeout_s=self.config.metadata_attempt_s,
            )

        metadata = MetadataClient(
            manager.meta_endpoints, dial, Identity.of_process(), incarnation, self.config
        )
        return Connection(metadata, data, manager.routing, self.config, manager.close)

    def _link(self, incarnation: Incarnation) -> ManagerLink | RoutingFollower:
        description = " ".join(sys.argv[:2])[:200]
        inherited = _newest.get(self.url) if fork.is_child() else None
        if inherited is not None:
            return RoutingFollower(inherited, incarnation, description=description)
        return ManagerLink(self.url, incarnation, description=description)


def _cluster_url(location: Location, start: bool) -> str:
    if location.url is not None:
        parse_url(location.url)
        return location.url
    running = _running_url(location.directory)
    if running is not None:
        return running
    if location.configured or not start:
        raise Unavailable(
            f"no cluster runs in {location.directory}; start it with "
            f"`fs3 up --dir {location.directory}`, or name one by --url or FS3_URL"
        )
    if location.scheduler is not None:
        raise NotFound(
            f"{location.scheduler} is set, so this looks like a server, and no cluster is "
            "configured; name it by FS3_URL=fs3://host:port"
        )
    return _start_local(location.directory)


def _running_url(directory: Path) -> str | None:
    """The URL of the local cluster in `directory`, if one runs there."""
    try:
        url = read_cluster_file(directory).url
    except NotFound:
        return None
    try:
        socket.create_connection(parse_url(url), timeout=_PROBE_TIMEOUT_S).close()
    except OSError:
        return None
    return url


def _start_local(directory: Path) -> str:
    """Starts the cluster in `directory`, a new one with one node; started once, whoever comes."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "connect.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = _running_url(directory)
        if running is not None:
            return running
        warnings.warn(
            f"fs3: no cluster is configured, so a local one is started in {directory}; "
            "`fs3 down` stops it, FS3_URL=fs3://host:port names another one",
            stacklevel=4,
        )
        is_new = not (directory / CLUSTER_FILE).exists()
        _run_up(["--dir", str(directory), *(["--nodes", "1"] if is_new else [])])
    return read_cluster_file(directory).url


def _run_up(arguments: Sequence[str]) -> None:
    command = [sys.executable, "-m", "deploy.local", "up", *arguments]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_START_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"a local cluster did not start within {_START_TIMEOUT_S:g} s; run `fs3 up` to see why"
        ) from None
    if result.returncode != 0:
        reason = (result.stderr.strip() or result.stdout.strip()).rpartition("\n")[2]
        raise Unavailable(
            f"a local cluster could not be started: {reason.removeprefix('fs3: ')}; "
            "run `fs3 up` to see more"
        )


def _chains(routing: Routing) -> list[tuple[int, int, list[tuple[int, int, int, str, int]]]]:
    return [
        (
            chain.id,
            chain.version,
            [(m.target, m.generation, int(m.state), m.host, m.port) for m in chain.members],
        )
        for chain in routing.chains
    ]
