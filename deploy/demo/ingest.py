"""Stage "ingest": copies the source files of the standard library into the cluster.

Verified by reading every file back from the cluster and comparing its checksum with that of the
local file.
"""

import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.demo.stage import Advance, require
from fs3 import FileSystem
from fs3._native import crc32c
from trainer_io import FileDataset
from trainer_io.dataset.source import Fs3Source

THREADS: Final = 8
READ_BACK_FILES: Final = 128
"""Files per batched read when verifying."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of this machine, and its name below the target directory."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Ingested:
    directory: str
    files: int
    bytes: int


def standard_library(files_max: int | None) -> list[SourceFile]:
    """Source files of the running interpreter, evenly chosen when there are more than wanted."""
    root = Path(sysconfig.get_path("stdlib"))
    found = [
        SourceFile(path, path.relative_to(root).as_posix())
        for path in sorted(root.rglob("*.py"))
        if not {"site-packages", "dist-packages"} & set(path.parts) and path.is_file()
    ]
    require(len(found) > 0, f"no Python source files below {root}")
    if files_max is None or len(found) <= files_max:
        return found
    return [found[i * len(found) // files_max] for i in range(files_max)]


def ingest(
    filesystem: FileSystem, sources: Sequence[SourceFile], directory: str, advance: Advance
) -> Ingested:
    """Copies `sources` below `directory`; advances once per file written and once per file read."""
    for parent in sorted({f"{directory}/{source.name}".rpartition("/")[0] for source in sources}):
        filesystem.makedirs(parent, exist_ok=True)

    def copy(source: SourceFile) -> tuple[str, int, int]:
        content = source.path.read_bytes()
        filesystem.write_bytes(f"{directory}/{source.name}", content)
        advance(1)
        return source.name, len(content), crc32c(content)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="ingest") as pool:
        written = list(pool.map(copy, sources))
    _read_back(filesystem, directory, {name: crc for name, _, crc in written}, advance)
    return Ingested(directory, len(written), sum(size for _, size, _ in written))


def _read_back(
    filesystem: FileSystem, directory: str, checksums: dict[str, int], advance: Advance
) -> None:
    stored = FileDataset(directory, source=Fs3Source(filesystem))
    require(
        set(stored.names) == set(checksums),
        f"{len(checksums)} files were written to {directory}, {len(stored)} are listed there",
    )
    for begin in range(0, len(stored), READ_BACK_FILES):
        names = stored.names[begin : begin + READ_BACK_FILES]
        contents = stored.__getitems__(range(begin, begin + len(names)))
        for name, content in zip(names, contents, strict=True):
            require(crc32c(content) == checksums[name], f"{name} reads back with another checksum")
        advance(len(names))
