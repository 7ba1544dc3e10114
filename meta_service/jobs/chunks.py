"""What background work needs from storage: removing, cutting and measuring the chunks of files.

`native_chunks` reaches the storage nodes; the fake of the tests keeps them in memory.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fs3.errors import Fs3Error
from fs3.ids import InodeId
from fs3.model.inode import Layout


class StoredFile(NamedTuple):
    """A file as its chunks know it."""

    inode: InodeId
    layout: Layout
    length: int
    truncate_version: int


class Chunks(Protocol):
    """Every method may be repeated: what is done already is done."""

    def remove(self, files: Sequence[StoredFile]) -> list[Fs3Error | None]:
        """Removes all chunks of each file; for each, why it must be tried again, or None."""

    def cut(self, file: StoredFile) -> None:
        """Leaves no byte at or beyond `file.length`, under `file.truncate_version`.

        Raises:
            Fs3Error: some chunk could not be reached.
        """

    def end_of_data(self, file: StoredFile) -> int:
        """Offset behind the last byte that is stored; 0 without any.

        Raises:
            Fs3Error: some chain could not be asked.
        """
