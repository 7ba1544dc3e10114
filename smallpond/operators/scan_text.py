"""CSV and JSON files as sources, read by DuckDB with a declared schema or its sniffer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from smallpond.io import files
from smallpond.operators.engine import literal, quote
from smallpond.operators.pieces import FilePiece, find_files
from smallpond.operators.rows import Rows, SqlRows
from smallpond.operators.task import TaskContext


@dataclasses.dataclass(frozen=True)
class ScanText:
    """Files that one DuckDB table function reads.

    Attributes:
        function: `read_csv` or `read_json`.
        paths: patterns as given by the user, made complete.
        schema: column names with DuckDB types; empty to let DuckDB find them out.
        options: further arguments of the table function, by name.
    """

    function: str
    paths: tuple[str, ...]
    schema: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, Any], ...]
    recursive: bool = False
    has_row_counts: bool = dataclasses.field(default=False, init=False)

    def pieces(self) -> list[FilePiece]:
        return find_files(self.paths, self.recursive)

    def counted(self, pieces: Sequence[FilePiece]) -> list[FilePiece]:
        del pieces
        raise AssertionError("the rows of a text file are known only after reading it")

    def rows(self, pieces: Sequence[FilePiece], task: TaskContext) -> Rows:
        engine = task.new_engine()
        for place in {files.files_for(piece.path) for piece in pieces}:
            if isinstance(place, files.RemoteFiles):
                engine.use_filesystem(place.filesystem)
        arguments = [f"[{', '.join(literal(piece.path) for piece in pieces)}]"]
        arguments += [f"{name} = {_sql_value(value)}" for name, value in self.options]
        if self.schema:
            columns = ", ".join(f"{literal(n)}: {literal(kind)}" for n, kind in self.schema)
            arguments.append(f"columns = {{{columns}}}")
        query = f"select * from {self.function}({', '.join(arguments)})"
        names = ", ".join(p.path for p in pieces[:3]) + (", ..." if len(pieces) > 3 else "")
        return SqlRows(engine, query, task, self.function, f"reading {names}")


def _sql_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quote(k)}: {_sql_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_sql_value(v) for v in value) + "]"
    return literal(str(value))
