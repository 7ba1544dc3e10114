"""Rules on the text of the repository that no linter knows."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE_MAX = 100
FILE_LINES_MAX = 800


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = listed.stdout.split()
    if not names:  # an exported tree without git
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if ".venv" not in p.parts]
    return [ROOT / name for name in names if name.endswith(suffixes) and (ROOT / name).is_file()]


SOURCES = [p for p in tracked(".py", ".h", ".cpp", ".pyi") if "_pb2" not in p.name]


def test_there_are_sources() -> None:
    assert len(SOURCES) > 50


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "HACK"])
def test_no_open_ends_in_code(word: str) -> None:
    own = Path(__file__)
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        if path != own
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(rf"\b{word}\b", line)
    ]
    assert not found, f"{word} belongs into an issue with an owner: {found}"


def test_files_stay_readable() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in SOURCES
        if (count := len(path.read_text().splitlines())) > FILE_LINES_MAX
    }
    assert not long, f"split these files (over {FILE_LINES_MAX} lines): {long}"
