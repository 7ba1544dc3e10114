"""The demo's own directory: made at the start and gone at the end; logs of a failure stay."""

import shutil
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Workspace:
    """Args:
    directory: absolute path.
    is_ours: it was made here, and is removed with its content.
    """

    directory: Path
    is_ours: bool

    @classmethod
    def make(cls, wanted: Path | None) -> "Workspace":
        """A new directory, `wanted` or a temporary one; an empty one that exists will do.

        Raises:
            FileExistsError: `wanted` holds something.
            OSError: it cannot be made.
        """
        if wanted is None:
            return cls(Path(tempfile.mkdtemp(prefix="fs3-demo-")), True)
        directory = wanted.expanduser().absolute()
        is_ours = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        if not is_ours and any(directory.iterdir()):
            raise FileExistsError(f"{directory} is not empty; choose a new --dir")
        return cls(directory, is_ours)

    def keep_logs(self, sources: Sequence[Path]) -> Path:
        """Copies log files to a directory that stays, with the current exception's traceback."""
        kept = Path(tempfile.mkdtemp(prefix="fs3-demo-logs-"))
        (kept / "traceback.txt").write_text(traceback.format_exc())
        for source in sources:
            for path in source.rglob("*.log"):
                shutil.copyfile(path, kept / "-".join(path.relative_to(source).parts))
        return kept

    def remove(self) -> None:
        if self.is_ours:
            shutil.rmtree(self.directory)
            return
        for path in self.directory.iterdir():
            shutil.rmtree(path)
