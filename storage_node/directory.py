"""What a storage node keeps on its disks about itself.

    DIRECTORY/lock         held by the process that runs on it
    DIRECTORY/node.json    identity, node id, cluster id, ports
    DISK/disk.json         which disk of which node, and its targets with their generations
    DISK/target-N/         one target, of the native store

A target's generation is drawn when the target is made and written down before the target is
formatted; only after that it is marked as formatted. So a target directory that has lost its
content is noticed, and never taken for the target it was.
"""

import fcntl
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from fs3.errors import Busy, Corrupt, Fs3Error, InvalidArgument, VersionMismatch, from_errno
from fs3.ids import ClusterId, NodeId, TargetId, target_id

T = TypeVar("T", bound=msgspec.Struct)

FORMAT: Final = 1


class NodeFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Attributes:
    identity: 16 random bytes; the manager gives the same node id to the same identity.
    node_id: 0 before the manager gave one.
    cluster_id: zero bytes before that.
    ports: of the shards, taken again after a restart where they are free.
    """

    format: int = FORMAT
    identity: bytes
    node_id: int = 0
    cluster_id: bytes = bytes(16)
    ports: list[int] = []


class TargetEntry(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    generation: int
    formatted: bool = False


class DiskFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    format: int = FORMAT
    cluster_id: bytes
    node_id: int
    disk: int
    targets: list[TargetEntry] = []


class NodeDirectory:
    """The directory of one node, locked for this process.

    Raises:
        Busy: another process runs on it.
        PermissionDenied, NoSpace: it cannot be written.
        Corrupt, VersionMismatch: `node.json` is not readable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        make_directory(path)
        self._lock = _lock(path / "lock")
        self._file = path / "node.json"
        if self._file.exists():
            self.node = _read(self._file, NodeFile)
        else:
            self.node = NodeFile(identity=secrets.token_bytes(16))
            self.save()

    @property
    def node_id(self) -> NodeId:
        return NodeId(self.node.node_id)

    @property
    def cluster_id(self) -> ClusterId:
        return ClusterId(self.node.cluster_id)

    def close(self) -> None:
        """Gives up the lock; the end of the process does so too."""
        os.close(self._lock)

    def save(self) -> None:
        write_durably(self._file, msgspec.json.encode(self.node))


class Disk:
    """One disk of a node and its targets.

    Raises:
        InvalidArgument: the disk belongs to another node or cluster.
        PermissionDenied, NoSpace: it cannot be written.
    """

    def __init__(self, path: Path, file: DiskFile) -> None:
        self.path = path
        self.file = file

    def target_id(self, entry: TargetEntry) -> TargetId:
        return target_id(NodeId(self.file.node_id), self.file.disk, entry.index)

    def target_path(self, entry: TargetEntry) -> Path:
        return self.path / f"target-{entry.index}"

    def mark_formatted(self, entries: Iterable[TargetEntry]) -> None:
        for entry in entries:
            entry.formatted = True
        self.save()

    def save(self) -> None:
        write_durably(self.path / "disk.json", msgspec.json.encode(self.file))


def open_disks(paths: Iterable[Path], node: NodeDirectory, targets_per_disk: int) -> list[Disk]:
    """The disks of a node; a new or replaced one gets the lowest free number and fresh targets.

    Raises:
        InvalidArgument: a disk belongs to another node or cluster, or two have the same number.
        PermissionDenied, NoSpace: a disk cannot be written.
        Corrupt, VersionMismatch: a `disk.json` is not readable.
    """
    known: dict[Path, DiskFile | None] = {}
    for path in paths:
        make_directory(path)
        label = path / "disk.json"
        known[path] = _read(label, DiskFile) if label.exists() else None
    used = [file.disk for file in known.values() if file is not None]
    free = (number for number in range(len(known) + len(used)) if number not in used)
    disks = []
    for path, file in known.items():
        disk = Disk(path, file or _new_disk(node, next(free), targets_per_disk))
        _check_owner(disk, node, used)
        disk.save()
        disks.append(disk)
    return disks


def make_directory(path: Path) -> None:
    """Raises PermissionDenied or NoSpace with the path and the remedy."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "")
    except OSError as error:
        raise _typed(error, path) from None


def write_durably(path: Path, data: bytes) -> None:
    """Replaces the file atomically; after a crash it has the old or the new content."""
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise _typed(error, path) from None


def _new_disk(node: NodeDirectory, number: int, targets: int) -> DiskFile:
    return DiskFile(
        cluster_id=node.cluster_id,
        node_id=node.node_id,
        disk=number,
        targets=[TargetEntry(i, secrets.randbits(63) | 1) for i in range(targets)],
    )


def _check_owner(disk: Disk, node: NodeDirectory, used: list[int]) -> None:
    file = disk.file
    if (file.cluster_id, file.node_id) != (node.cluster_id, node.node_id):
        raise InvalidArgument(
            f"{disk.path} is a disk of node {file.node_id} of cluster {file.cluster_id.hex()}, not "
            f"of node {node.node_id} of {node.cluster_id.hex()}; give it back or empty it"
        )
    if used.count(file.disk) > 1:
        raise InvalidArgument(
            f"{disk.path} and another disk both are disk {file.disk}; one is a copy"
        )


def _read(path: Path, kind: type[T]) -> T:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _typed(error, path) from None
    try:
        version = msgspec.json.decode(raw, type=dict[str, object]).get("format")
        if isinstance(version, int) and version > FORMAT:
            raise VersionMismatch(f"{path} has format {version}, newer than this fs3; upgrade fs3")
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{path} is damaged ({error}); restore it from a backup") from None


def _lock(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _typed(error, path) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Busy(f"another storage node already runs on {path.parent}") from None
    return descriptor


def _typed(error: OSError, path: Path) -> Fs3Error:
    if isinstance(error, PermissionError):
        subject = f"{path} (it belongs to another user, or is read-only: choose another directory)"
        return from_errno(error.errno or 13, subject)
    return from_errno(error.errno or 5, str(path))
