"""The wheel that users install builds from the tree and imports without it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_builds_and_imports(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            *("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"),
            *("--wheel-dir", tmp_path, f"--config-settings=build-dir={tmp_path}/build", ROOT),
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("fs3-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    names = {path.name for path in site.iterdir()}
    assert {"fs3", "meta_service", "storage_node", "smallpond", "trainer_io", "deploy"} <= names
    assert not list((site / "fs3").rglob("*.cpp")), "sources stay in the repository"
    program = "import fs3, fs3._native; print(fs3.__file__, hex(fs3._native.crc32c(b'123456789')))"
    imported = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert imported.stdout.split() == [str(site / "fs3/__init__.py"), "0xe3069283"]
