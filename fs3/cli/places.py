"""Where `fs3 cp` reads and writes: the local disk, a cluster, or a standard stream.

`fs3:/path`, `fs3://path` and `fs3://host:port/path` are in a cluster, `-` is standard input or
output, and everything else is on the local disk.
"""

import os
import posixpath
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from fs3.cli.settings import CannotRun

if TYPE_CHECKING:
    from fs3.client.filesystem import FileSystem
    from fs3.client.transfer import Sink, Source


class Kind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"


class Place(Protocol):
    """One path of one of the sides."""

    @property
    def text(self) -> str:
        """As the user would write it."""

    @property
    def name(self) -> str:
        """The last component, empty for a stream."""

    def below(self, name: str) -> "Place": ...

    def above(self) -> "Place":
        """The directory that has the name."""

    def kind(self, *, follow: bool) -> Kind | None:
        """What is there, or None."""

    def identity(self) -> tuple[object, ...] | None:
        """Equal for two names of one file or directory; None for a stream and for nothing."""

    def children(self) -> Iterator["Place"]: ...

    def size(self) -> int | None:
        """Bytes of a file; None for a stream."""

    def permissions(self) -> int: ...

    def readlink(self) -> str: ...

    def read(self) -> "AbstractContextManager[Source]": ...

    def write(self, permissions: int) -> "AbstractContextManager[Sink]": ...

    def mkdir(self) -> None:
        """Makes a directory; an existing one is fine."""

    def symlink(self, target: str) -> None: ...


@dataclass(frozen=True)
class LocalPlace:
    text: str

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.text))

    def below(self, name: str) -> "LocalPlace":
        return LocalPlace(os.path.join(self.text, name))

    def above(self) -> "LocalPlace":
        return LocalPlace(os.path.dirname(os.path.abspath(self.text)))

    def kind(self, *, follow: bool) -> Kind | None:
        try:
            return _kind(os.stat(self.text, follow_symlinks=follow).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def identity(self) -> tuple[object, ...] | None:
        try:
            found = os.stat(self.text)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return "local", found.st_dev, found.st_ino

    def children(self) -> Iterator[Place]:
        for name in sorted(os.listdir(self.text)):
            yield self.below(name)

    def size(self) -> int | None:
        return os.stat(self.text).st_size

    def permissions(self) -> int:
        return os.stat(self.text).st_mode & 0o777

    def readlink(self) -> str:
        return os.readlink(self.text)

    def read(self) -> "AbstractContextManager[Source]":
        return open(self.text, "rb", buffering=0)

    def write(self, permissions: int) -> "AbstractContextManager[Sink]":
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        return open(os.open(self.text, flags, permissions), "wb", buffering=0)

    def mkdir(self) -> None:
        os.makedirs(self.text, exist_ok=True)

    def symlink(self, target: str) -> None:
        os.symlink(target, self.text)


@dataclass(frozen=True)
class ClusterPlace:
    fs: "FileSystem"
    path: str

    @property
    def text(self) -> str:
        return f"fs3:{self.path}"

    @property
    def name(self) -> str:
        return posixpath.basename(self.path.rstrip("/"))

    def below(self, name: str) -> "ClusterPlace":
        return ClusterPlace(self.fs, posixpath.join(self.path, name))

    def above(self) -> "ClusterPlace":
        return ClusterPlace(self.fs, posixpath.dirname(self.path.rstrip("/")) or "/")

    def kind(self, *, follow: bool) -> Kind | None:
        try:
            return _kind(self.fs.stat(self.path, follow_symlinks=follow).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def identity(self) -> tuple[object, ...] | None:
        try:
            return self.fs.url, self.fs.stat(self.path).st_ino
        except (FileNotFoundError, NotADirectoryError):
            return None

    def children(self) -> Iterator[Place]:
        for entry in self.fs.scandir(self.path):
            yield self.below(entry.name)

    def size(self) -> int | None:
        return self.fs.stat(self.path).st_size

    def permissions(self) -> int:
        return self.fs.stat(self.path).st_mode & 0o777

    def readlink(self) -> str:
        return self.fs.readlink(self.path)

    def read(self) -> "AbstractContextManager[Source]":
        return self.fs.open(self.path, "rb")

    def write(self, permissions: int) -> "AbstractContextManager[Sink]":
        return self.fs.open(self.path, "wb", permissions=permissions)

    def mkdir(self) -> None:
        self.fs.mkdir(self.path, exist_ok=True)

    def symlink(self, target: str) -> None:
        self.fs.symlink(target, self.path)


@dataclass(frozen=True)
class StreamPlace:
    """Standard input as a source, standard output as a target."""

    text: str = "-"
    name: str = ""

    def below(self, name: str) -> Place:
        raise CannotRun(f"-: a stream holds no {name}; name a directory")

    def above(self) -> Place:
        return self

    def kind(self, *, follow: bool) -> Kind | None:
        del follow
        return Kind.FILE

    def identity(self) -> tuple[object, ...] | None:
        return None

    def children(self) -> Iterator[Place]:
        return iter(())

    def size(self) -> int | None:
        return None

    def permissions(self) -> int:
        return 0o644

    def readlink(self) -> str:
        raise CannotRun("-: a stream is no symbolic link")

    def read(self) -> "AbstractContextManager[Source]":
        source: Any = sys.stdin.buffer
        return nullcontext(source)

    def write(self, permissions: int) -> "AbstractContextManager[Sink]":
        del permissions
        return nullcontext(sys.stdout.buffer)

    def mkdir(self) -> None:
        raise CannotRun("-: a directory cannot be written to a stream; use tar")

    def symlink(self, target: str) -> None:
        raise CannotRun(f"-: a link to {target} cannot be written to a stream")


def place(text: str, connect: "Callable[[str | None], FileSystem]") -> Place:
    """The place that an argument of `fs3 cp` means."""
    from fs3.client.path import split_url

    if text == "-":
        return StreamPlace()
    if not text.startswith("fs3:"):
        return LocalPlace(text)
    url, path = split_url(text)
    return ClusterPlace(connect(url), path)


def _kind(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.FILE
