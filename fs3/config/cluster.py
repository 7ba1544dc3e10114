"""What every process of a cluster agrees on: its URL, and the file that describes a local one.

The directory of a local cluster holds `cluster.json`, written by `fs3 up`. Nothing else in the
directory is read by clients.
"""

import errno
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from fs3.errors import InvalidArgument, NotFound, PermissionDenied, VersionMismatch

CLUSTER_FILE: Final = "cluster.json"
CLUSTER_FORMAT: Final = 1
SCHEME: Final = "fs3://"


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One daemon of a local cluster.

    Attributes:
        name: `manager` or `node-N`.
        pid: process id when it was last started, 0 when it was stopped.
        start_ticks: start time of that process in clock ticks since boot, so that a recycled pid is
            never taken for it.
        boot_id: of the host when it was started: ticks of another boot mean nothing.
    """

    name: str
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A local cluster as it was asked for, and where it answers."""

    format: int = CLUSTER_FORMAT
    url: str
    nodes: int
    replicas: int
    chains: int
    processes: tuple[Process, ...] = ()


def parse_url(url: str) -> Endpoint:
    """`fs3://host:port` -> where the cluster manager answers.

    Raises:
        InvalidArgument: it is something else.
    """
    host, colon, port = url.removeprefix(SCHEME).rstrip("/").rpartition(":")
    if not (url.startswith(SCHEME) and colon and host and port.isascii() and port.isdigit()):
        raise InvalidArgument(f"{url!r} is not a cluster URL; write fs3://HOST:PORT")
    if not 0 < int(port) < 1 << 16:
        raise InvalidArgument(f"{url!r} names port {port}; ports are 1 to 65535")
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port))


def read_cluster_file(directory: Path) -> ClusterFile:
    """The local cluster that lives in `directory`.

    Raises:
        NotFound: there is none.
        PermissionDenied: the directory belongs to somebody else.
        VersionMismatch: it was written by a newer fs3.
        InvalidArgument: the file is not one of ours.
    """
    path = directory / CLUSTER_FILE
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"no cluster in {directory}; `fs3 up --dir {directory}` starts one", errno=errno.ENOENT
        ) from None
    except PermissionError:
        raise PermissionDenied(f"{path} belongs to another user; choose another --dir") from None
    return _decode(raw, path)


def _decode(raw: bytes, path: Path) -> ClusterFile:
    try:
        version = msgspec.json.decode(raw, type=dict[str, object]).get("format")
        if isinstance(version, int) and version > CLUSTER_FORMAT:
            raise VersionMismatch(f"{path} has format {version}, newer than this fs3; upgrade fs3")
        return msgspec.json.decode(raw, type=ClusterFile)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"{path} is damaged ({error}); restore it or start over") from None
