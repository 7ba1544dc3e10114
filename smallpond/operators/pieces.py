"""What a source consists of before it is read: files and row ranges of files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from smallpond.errors import SmallpondError
from smallpond.io import files


@dataclasses.dataclass(frozen=True, slots=True)
class FilePiece:
    """A file, or `rows` rows of it from `first_row` on.

    Attributes:
        rows: None while the file's row count is not known.
        is_whole: the piece is the entire file.
    """

    path: str
    first_row: int = 0
    rows: int | None = None
    is_whole: bool = True

    def slice(self, first: int, rows: int) -> FilePiece:
        assert self.rows is not None
        whole = self.is_whole and first == 0 and rows == self.rows
        return FilePiece(self.path, self.first_row + first, rows, whole)


class NoInputFiles(SmallpondError, FileNotFoundError):
    """A path or pattern of a source matches no file."""

    def __str__(self) -> str:
        return str(self.args[0])


def find_files(patterns: Sequence[str], recursive: bool) -> list[FilePiece]:
    """The files of all patterns, each pattern's in order of name.

    Raises:
        NoInputFiles: a pattern matches nothing, which is a mistake more often than an empty input.
    """
    found: list[FilePiece] = []
    for pattern in patterns:
        matches = files.files_for(pattern).find(pattern, recursive)
        if not matches:
            raise NoInputFiles(f"no file matches {pattern}; check the path, or leave it out")
        found.extend(FilePiece(path) for path in matches)
    return found
