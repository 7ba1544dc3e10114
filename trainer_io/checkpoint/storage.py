"""Where checkpoints are written: create under a temporary name, write at offsets, commit."""

import os
from typing import TYPE_CHECKING, Protocol

from typing_extensions import Buffer

from trainer_io.dataset.source import FileSource, Fs3Source, LocalSource, open_source

if TYPE_CHECKING:
    from fs3.client.file import File
    from fs3.client.filesystem import FileSystem


class WritableFile(Protocol):
    """A new file. `write_at` may be called by several threads."""

    def write_at(self, offset: int, data: Buffer) -> int: ...

    def fsync(self) -> None:
        """Returns once everything written survives power loss."""

    def close(self) -> None: ...


class Storage(Protocol):
    """Writes files of one file system, and reads them back through `source`."""

    source: FileSource

    def create(self, path: str) -> WritableFile:
        """Raises:
        FileExistsError: there is something already.
        """

    def commit(self, temporary: str, path: str) -> None:
        """Atomically renames, replacing what is there, and makes that survive power loss."""

    def remove(self, path: str) -> None: ...


class LocalFile:
    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write_at(self, offset: int, data: Buffer) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.pwrite(self._descriptor, view[done:], offset + done)
        return done

    def fsync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class LocalStorage:
    """Files of this machine."""

    source: FileSource = LocalSource()

    def create(self, path: str) -> WritableFile:
        return LocalFile(path)

    def commit(self, temporary: str, path: str) -> None:
        os.replace(temporary, path)
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self, path: str) -> None:
        os.remove(path)


class Fs3Storage:
    """Files of a cluster. Metadata is durable when a rename returns.

    Args:
        filesystem: as `fs3.connect` gives it.
    """

    def __init__(self, filesystem: "FileSystem") -> None:
        self.source: FileSource = Fs3Source(filesystem)
        self._filesystem = filesystem

    def create(self, path: str) -> "File":
        return self._filesystem.open(path, "xb")

    def commit(self, temporary: str, path: str) -> None:
        self._filesystem.replace(temporary, path)

    def remove(self, path: str) -> None:
        self._filesystem.remove(path)


def open_storage(path: str | os.PathLike[str]) -> tuple[Storage, str]:
    """The storage for a path or URL, and the path in it; as `open_source`."""
    source, inside = open_source(path)
    if isinstance(source, Fs3Source):
        return Fs3Storage(source.filesystem), inside
    return LocalStorage(), inside
