import pytest
from hypothesis import given
from hypothesis import strategies as st

from fs3.ids import ChunkId, InodeId, NodeId, node_of, target_id
from fs3.units import format_bytes, parse_bytes


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
def test_chunk_id_round_trip(inode: int, index: int, generation: int) -> None:
    chunk = ChunkId(InodeId(inode), index, generation, 0)
    assert ChunkId.decode(chunk.encode()) == chunk


def test_chunk_id_golden_bytes_and_order() -> None:
    assert ChunkId(InodeId(0x0102), 0x03, 4, 5).encode().hex() == "00000000000001020000000300040005"
    chunks = [ChunkId(InodeId(i), j) for i in (1, 255, 256) for j in (0, 1, 300)]
    assert sorted(c.encode() for c in chunks) == [c.encode() for c in sorted(chunks)]


def test_target_id_holds_its_node() -> None:
    target = target_id(NodeId(7), 2, 3)
    assert (target, node_of(target)) == (7 << 32 | 2 << 16 | 3, 7)
    with pytest.raises(ValueError, match="outside"):
        target_id(NodeId(1), 1 << 16, 0)


@pytest.mark.parametrize(
    ("text", "size"), [("512", 512), ("64KiB", 65536), ("1 MiB", 1 << 20), ("4m", 4 << 20)]
)
def test_parse_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "1 zib", "ten"])
def test_parse_bytes_names_the_remedy(text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_format_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text
