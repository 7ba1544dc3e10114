"""Chunks in memory, for the background jobs of the metadata service."""

from collections.abc import Sequence
from typing import NamedTuple

from fs3.errors import Fs3Error, StaleHandle, Unavailable
from fs3.ids import InodeId
from meta_service.jobs.chunks import StoredFile


class Stored(NamedTuple):
    end: int
    truncate_version: int


class FakeChunks:
    """Attributes:
    files: what is stored of each file; a removed file stays, with end 0 and its version.
    is_down: every call fails as when a chain does not answer.
    calls: names of the calls that were answered.
    """

    def __init__(self) -> None:
        self.files: dict[InodeId, Stored] = {}
        self.is_down = False
        self.calls: list[str] = []

    def write(self, inode: InodeId, end: int, truncate_version: int = 0) -> None:
        """A client's write that reaches up to `end`; refused under an older version."""
        before = self.files.get(inode, Stored(0, truncate_version))
        if truncate_version < before.truncate_version:
            raise StaleHandle("reopen")
        self.files[inode] = Stored(max(before.end, end), truncate_version)

    def remove(self, files: Sequence[StoredFile]) -> list[Fs3Error | None]:
        if self.is_down:
            return [Unavailable("chain is down") for _ in files]
        for file in files:
            self.files[file.inode] = Stored(0, file.truncate_version)
        self.calls += ["remove"] * len(files)
        return [None] * len(files)

    def cut(self, file: StoredFile) -> None:
        self._answer("cut")
        before = self.files.get(file.inode, Stored(0, 0))
        if file.truncate_version > before.truncate_version:
            self.files[file.inode] = Stored(min(before.end, file.length), file.truncate_version)

    def end_of_data(self, file: StoredFile) -> int:
        self._answer("end_of_data")
        return self.files.get(file.inode, Stored(0, 0)).end

    def stored_bytes(self) -> int:
        return sum(stored.end for stored in self.files.values())

    def _answer(self, call: str) -> None:
        if self.is_down:
            raise Unavailable("chain is down")
        self.calls.append(call)
