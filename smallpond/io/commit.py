"""Output directories that readers see whole or not at all.

Tasks write into a hidden sibling of the target, so that a run that fails leaves nothing and a
reader who globs the target sees none of a running one. When all tasks are done the commit makes
the files of the successful attempts visible:

* target missing or empty: the hidden directory is renamed to it, in one step;
* `overwrite`: the hidden directory is exchanged with the target in one step where the file system
  can (local Linux), else the old one is moved aside first; then the old one is removed;
* `append` (as the published package does): each file is moved into the target under a name no
  other run uses. Each file appears whole; the set of them does not appear in one step;
* `error`: files in the target are an error, before anything runs.

Two runs that write the same target at the same time cannot see each other's files; whichever
commits second follows its own mode.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence

import pyarrow as pa

from smallpond.errors import OutputExists, PlanError
from smallpond.io import files

MODES = ("append", "overwrite", "error")


class OutputDirectory:
    """The output of one run."""

    def __init__(self, path: str, mode: str) -> None:
        """Raises:
        PlanError: `mode` is none of append, overwrite, error.
        OutputExists: mode is error and the target holds files.
        NotADirectoryError: the target is a file.
        """
        if mode not in MODES:
            raise PlanError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        self.path = files.complete_path(path)
        self.mode = mode
        self.run = uuid.uuid4().hex[:12]
        self._place = files.files_for(self.path)
        if self._place.exists(self.path) and not self._place.is_directory(self.path):
            raise NotADirectoryError(f"{self.path} is a file; the output is a directory of files")
        if mode == "error" and self._visible_names():
            raise OutputExists(
                f"{self.path} holds files; use mode='overwrite' or mode='append', or another path"
            )
        self.hidden = self._hidden_path()
        self.attempts = files.join(self.hidden, "attempts")
        self._rows = files.join(self.hidden, "rows")

    def _hidden_path(self) -> str:
        parent, name = files.parent_and_name(self.path)
        beside = parent if self._can_create_in(parent) else self.path
        return files.join(beside, f".{name}.smallpond-{self.run}")

    def _can_create_in(self, parent: str) -> bool:
        """A sibling needs a parent we may write to; otherwise the run hides inside the target."""
        if files.is_remote(parent):
            return not parent.endswith("://")
        existing = parent
        while not os.path.isdir(existing) and existing != "/":
            existing = os.path.dirname(existing)
        return os.access(existing, os.W_OK | os.X_OK)

    def _visible_names(self) -> list[str]:
        return [n for n in self._place.list_names(self.path) if not n.startswith((".", "_"))]

    def begin(self) -> None:
        self._place.make_directory(self.attempts)

    def abort(self) -> None:
        self._place.remove_tree(self.hidden)

    def commit(
        self, written: Sequence[tuple[int, str]], partitions: int, schema: pa.Schema
    ) -> None:
        """Show the files of the winning attempts.

        Args:
            written: partition and path of each file, in order.
            partitions: of the frame.
            schema: used for the one empty file that stands for a frame without rows.
        """
        self._place.make_directory(self._rows)
        names = [self._name(partition, partitions) for partition, _ in written]
        for (_, path), name in zip(written, names, strict=True):
            self._place.rename(path, files.join(self._rows, name))
        if not written:
            import pyarrow.parquet as pq

            names = [self._name(0, 1)]
            with self._place.open_output(files.join(self._rows, names[0])) as sink:
                pq.write_table(schema.empty_table(), sink)
        self._show(names)
        self._place.remove_tree(self.hidden)

    def _name(self, partition: int, partitions: int) -> str:
        return f"part-{partition:05d}-of-{partitions:05d}-{self.run}.parquet"

    def _show(self, names: Sequence[str]) -> None:
        place = self._place
        inside = self.hidden.startswith(self.path + "/")
        is_free = not place.list_names(self.path)
        if is_free and not inside:
            place.rename(self._rows, self.path)
        elif self.mode == "overwrite" and not inside:
            self._replace()
        else:
            old = self._visible_names() if self.mode == "overwrite" else []
            for name in names:
                place.rename(files.join(self._rows, name), files.join(self.path, name))
            for name in old:
                place.remove_tree(files.join(self.path, name))

    def _replace(self) -> None:
        if self._place.exchange_directories(self._rows, self.path):
            return
        self._place.rename(self.path, files.join(self.hidden, "old"))
        self._place.rename(self._rows, self.path)
