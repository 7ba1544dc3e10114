"""Generates the committed gRPC code from the .proto files: `./run proto`.

The generated code is committed so that an installed package needs no compiler; a test generates it
again and compares, so it is never stale.
"""

import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent


def generate(into: Path) -> None:
    """Writes `fs3/wire/proto/*_pb2*.py{,i}` below `into`.

    Raises:
        RuntimeError: protoc refused; its messages are on standard error.
    """
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(ROOT)) for path in HERE.glob("*.proto"))
    outputs = (f"--{kind}_out={into}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc"))
    scripts = Path(sysconfig.get_path("scripts"))
    plugins = (f"--plugin={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc"))
    status = protoc.main(["protoc", f"-I{ROOT}", *plugins, *outputs, *sources])
    if status != 0:
        raise RuntimeError(f"protoc failed with status {status}; its messages are above")


if __name__ == "__main__":
    generate(ROOT)
    sys.stdout.write(f"generated {len(list(HERE.glob('*_pb2*')))} files in {HERE}\n")
