"""A state comes back bit-equal, other programs read the file, damage and crashes are noticed."""

import json
import struct
from typing import Any

import pytest
import torch

from fs3.errors import Corrupt
from tests.unit.trainer_io.conftest import Place
from trainer_io import checkpoint
from trainer_io.checkpoint.dtypes import NAMES, bytes_of
from trainer_io.checkpoint.save import CHUNK_BYTES
from trainer_io.dataset.source import find_files


def every_type() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {name: (torch.rand(3, 5) * 100).to(dtype).reshape(5, 3) for dtype, name in NAMES.items()}


def training_state() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.LayerNorm(9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.rand(4, 7)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}


def assert_equal(a: Any, b: Any) -> None:
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert bytes_of(a.contiguous()) == bytes_of(b.contiguous())
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert type(a) is type(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b
        assert type(a) is type(b)


@pytest.mark.parametrize(
    "state",
    [
        training_state(),
        every_type(),
        {"empty": torch.empty(0, 3), "scalar": torch.tensor(1.5), "view": torch.rand(4, 6).t()},
        {"nested": [1, 2.5, None, True, "text", (torch.ones(2), {3: torch.zeros(1)})]},
        {},
    ],
    ids=["training", "types", "shapes", "nested", "empty"],
)
def test_a_state_comes_back_bit_equal(place: Place, state: dict[str, Any]) -> None:
    place.write("keep", b"")
    path = f"{place.root}/state.safetensors"
    written = checkpoint.save(state, path, storage=place.storage)
    assert_equal(dict(state), checkpoint.load(path, storage=place.storage))
    (entry,) = find_files(place.source, path, "*")
    assert entry.size_bytes == written


def test_large_tensors_go_in_chunks_and_replace_what_was_there(place: Place) -> None:
    place.write("state", b"an old file")
    path = f"{place.root}/state"
    state = {"large": torch.rand(CHUNK_BYTES // 4 * 2 + 17), "small": torch.rand(3)}
    checkpoint.save(state, path, storage=place.storage)
    assert_equal(state, checkpoint.load(path, storage=place.storage))
    assert [e.name for e in find_files(place.source, place.root, "*")] == ["state"]


def test_the_file_is_safetensors(local: Place) -> None:
    """Read by the format's own rules, as another program would."""
    path = f"{local.root}/s.safetensors"
    state = every_type()
    checkpoint.save({"m": state}, path, metadata={"run": "7"})
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack_from("<Q", content)
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__")["run"] == "7"
    data = content[8 + length :]
    ends = sorted(tuple(field["data_offsets"]) for field in header.values())
    assert [begin for begin, _ in ends] == [0, *(end for _, end in ends[:-1])], "no gaps"
    assert ends[-1][1] == len(data)
    for name, tensor in state.items():
        field = header[f"m/{name}"]
        begin, end = field["data_offsets"]
        assert field["dtype"] == name
        assert data[begin:end] == bytes(bytes_of(tensor))
        assert begin % tensor.element_size() == 0


def test_a_foreign_file_gives_its_tensors_aligned_or_not(local: Place) -> None:
    header = json.dumps(
        {
            "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": [3, 7]},
        }
    ).encode()
    content = struct.pack("<Q", len(header)) + header + b"\1\2\3" + struct.pack("<f", 2.5)
    local.write("f.safetensors", content)
    loaded = checkpoint.load(f"{local.root}/f.safetensors")
    assert_equal(
        loaded, {"a": torch.tensor([1, 2, 3], dtype=torch.uint8), "b": torch.tensor([2.5])}
    )


def test_damage_is_noticed_and_named(local: Place) -> None:
    path = f"{local.root}/s.safetensors"
    checkpoint.save({"w": torch.ones(100)}, path)
    with open(path, "r+b") as file:
        file.seek(-7, 2)
        file.write(b"\xff")
    with pytest.raises(Corrupt, match="tensor 'w' is damaged"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{}" + b"more",
        struct.pack("<Q", 9) + b"not json!",
    ],
)
def test_what_is_no_checkpoint_is_refused(local: Place, content: bytes) -> None:
    local.write("x", content)
    with pytest.raises(ValueError, match="/x: "):
        checkpoint.load(f"{local.root}/x")


def test_what_cannot_be_saved_is_named(local: Place) -> None:
    with pytest.raises(TypeError, match="a/b: a checkpoint holds"):
        checkpoint.save({"a": {"b": object()}}, f"{local.root}/x")
    with pytest.raises(ValueError, match="two tensors have the name 'a/b'"):
        checkpoint.save({"a": {"b": torch.ones(1)}, "a/b": torch.ones(1)}, f"{local.root}/x")
    with pytest.raises(FileNotFoundError):
        checkpoint.save({}, f"{local.root}/missing/x")
    with pytest.raises(FileNotFoundError):
        checkpoint.load(f"{local.root}/x")


def test_a_failure_leaves_the_old_checkpoint_and_no_litter(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{local.root}/s"
    checkpoint.save({"step": 1}, path)

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("trainer_io.checkpoint.storage.LocalFile.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save({"step": 2}, path)
    assert checkpoint.load(path) == {"step": 1}
    assert [e.name for e in find_files(local.source, local.root, "*")] == ["s"]
