"""clang-tidy over every native source file: `python -m tests.tidy.clang_tidy DIR`.

DIR holds `compile_commands.json`. Files whose result is known good for their content and headers
are remembered in DIR, so that a second run costs nothing. Exit 0 good, 1 findings, 2 not run.
"""

import hashlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARALLEL = 2


def main() -> int:
    build = Path(sys.argv[1])
    if shutil.which("clang-tidy") is None:
        print("clang-tidy is missing: apt-get install clang-tidy", file=sys.stderr)
        return 2
    headers = [*sorted((ROOT / "fs3/native").rglob("*.h")), ROOT / ".clang-tidy"]
    shared = hashlib.sha256(b"".join(path.read_bytes() for path in headers)).digest()
    known = build / "clang-tidy"
    known.mkdir(parents=True, exist_ok=True)
    sources = sorted((ROOT / "fs3/native").rglob("*.cpp"))
    with ThreadPoolExecutor(PARALLEL) as pool:
        bad = sum(pool.map(lambda source: _check(source, shared, build, known), sources))
    print(f"clang-tidy: {len(sources)} files, {bad} with findings")
    return 1 if bad else 0


def _check(source: Path, shared: bytes, build: Path, known: Path) -> int:
    mark = known / hashlib.sha256(shared + source.read_bytes()).hexdigest()
    if mark.exists():
        return 0
    result = subprocess.run(
        ["clang-tidy", "-p", str(build), "--quiet", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode == 0:
        mark.touch()
        return 0
    print(result.stdout.strip() or result.stderr.strip(), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
