"""The architecture as import contracts: who may know whom, and what a pure core may not touch.

Reads the import statements of every module; nothing is imported, so a broken module still counts.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("fs3", "meta_service", "storage_node", "smallpond", "trainer_io", "deploy")

IMPURE = frozenset(
    {
        "asyncio",
        "concurrent",
        "ctypes",
        "fsspec",
        "grpc",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "psutil",
        "queue",
        "random",
        "secrets",
        "select",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    }
)
"""What a `core` package may not import: clocks, dice, input and output, threads, processes."""


class Import(NamedTuple):
    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[Import]:
    importer = module_name(path)
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*anchor, base]).rstrip(".")
            for alias in node.names:
                yield Import(importer, f"{base}.{alias.name}", node.lineno)


def all_imports() -> list[Import]:
    return [
        found
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
        for found in imports_of(path)
    ]


IMPORTS = all_imports()


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


FORBIDDEN = {
    "nothing points out of fs3": (("fs3",), PACKAGES[1:], ()),
    "services do not know the client": (
        ("meta_service", "storage_node"),
        ("fs3.client", "fs3.cli", "fs3.fsspec", "smallpond", "trainer_io", "deploy"),
        (),
    ),
    "services do not know each other": (("meta_service",), ("storage_node",), ()),
    "storage knows no metadata": (("storage_node",), ("meta_service",), ()),
    "the data engine stands alone": (
        ("smallpond",),
        ("meta_service", "storage_node", "trainer_io", "deploy"),
        (),
    ),
    "training io stands alone": (
        ("trainer_io",),
        ("meta_service", "storage_node", "smallpond", "deploy"),
        (),
    ),
    "models and wire know no shell": (
        ("fs3.model", "fs3.wire", "fs3.ids", "fs3.units", "fs3.errors"),
        ("fs3.client", "fs3.runtime", "fs3.cli", "fs3.fuse", "fs3.console", "fs3.config"),
        (),
    ),
}
"""rule -> (importers, what they may not import, exceptions)"""


@pytest.mark.parametrize("rule", FORBIDDEN)
def test_import_contract(rule: str) -> None:
    importers, forbidden, exceptions = FORBIDDEN[rule]
    broken = [
        str(found)
        for found in IMPORTS
        if within(found.importer, *importers)
        and within(found.imported, *forbidden)
        and found.importer not in exceptions
    ]
    assert not broken, f"{rule}:\n" + "\n".join(broken)


def test_cores_are_pure() -> None:
    broken = [
        str(found)
        for found in IMPORTS
        if ".core." in found.importer + "." and found.imported.split(".")[0] in IMPURE
    ]
    assert not broken, "a core decides, it does not act:\n" + "\n".join(broken)


def test_the_checker_sees_imports() -> None:
    """The rules above would pass on an empty list; prove that imports are found at all."""
    assert any(found.imported.startswith("fs3.ids") for found in IMPORTS)
    sample = ROOT / "fs3" / "ids.py"
    assert "secrets" in {found.imported for found in imports_of(sample)}
