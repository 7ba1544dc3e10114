"""The committed gRPC code is what the committed .proto files generate."""

from pathlib import Path

from fs3.wire.proto import generate


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    made = {path.name: path.read_text() for path in (tmp_path / "fs3/wire/proto").iterdir()}
    committed = {path.name: path.read_text() for path in generate.HERE.glob("*_pb2*")}
    assert made == committed, "run `./run proto` and commit what changes"
