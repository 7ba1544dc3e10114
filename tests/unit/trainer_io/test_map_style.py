"""Random access: files, rows and token windows equal what a plain reader gives, in batches."""

import pickle
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from fs3.units import KIB
from tests.unit.trainer_io.conftest import Place
from trainer_io import FileDataset, ParquetDataset, TokenDataset
from trainer_io.dataset.source import Bytes, FileSource, Range


class Counting:
    """A source that notes how many batched reads there were and how many bytes they took."""

    def __init__(self, source: FileSource) -> None:
        self.inner = source
        self.reads: list[int] = []
        self.list_files = source.list_files

    def read_into(self, ranges: Sequence[Range], memory: Bytes) -> list[int]:
        self.reads.append(sum(length for _, _, length in ranges))
        return self.inner.read_into(ranges, memory)


def table(rows: int, seed: int = 0) -> pa.Table:
    generator = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(rows) + 1000 * seed,
            "text": [f"row {i} of {seed}" for i in range(rows)],
            "padding": [generator.bytes(200) for _ in range(rows)],
            "vector": [generator.random(i % 4) for i in range(rows)],
            "maybe": [None if i % 3 == 0 else i for i in range(rows)],
        }
    )


def test_files_come_as_bytes_in_one_read(place: Place) -> None:
    contents = {f"{i:03}.bin": bytes([i]) * i for i in range(50)}
    for name, content in contents.items():
        place.write(name, content)
    source = Counting(place.source)
    data = FileDataset(place.root, source=source)
    assert data.names == list(contents)
    assert data.total_bytes == sum(map(len, contents.values()))
    assert data.__getitems__([7, 0, 49, 7]) == [contents[data.names[i]] for i in (7, 0, 49, 7)]
    assert len(source.reads) == 1
    assert data[-1] == contents["049.bin"]


def test_rows_equal_the_table_and_unwanted_columns_are_not_read(place: Place) -> None:
    for seed in range(3):
        place.write_table(f"part-{seed}.parquet", table(100, seed), row_group_size=30)
    whole = pa.concat_tables([table(100, seed) for seed in range(3)])
    source = Counting(place.source)
    data = ParquetDataset(place.root, columns=["text", "vector"], source=source)
    assert len(data) == 300
    assert len(source.reads) == 1, "all footers in one read"
    wanted = [299, 0, 150, 31, 31, -1]
    rows = data.__getitems__(wanted)
    assert len(source.reads) == 2, "all row groups in one read"
    assert source.reads[1] < 4 * 30 * 200, "the padding column stayed where it is"
    for index, row in zip(wanted, rows, strict=True):
        assert list(row) == ["text", "vector"]
        assert row["text"] == whole["text"][index % 300].as_py()
        assert np.array_equal(row["vector"], whole["vector"][index % 300].as_py())
    data.__getitems__([298, 1])
    assert len(source.reads) == 2, "these row groups are cached"


def test_all_columns_and_nulls(place: Place) -> None:
    place.write_table("a.parquet", table(7))
    rows = ParquetDataset(place.root, source=place.source).__getitems__(range(7))
    assert [row["maybe"] for row in rows] == [None, 1, 2, None, 4, 5, None]
    assert [row["id"] for row in rows] == list(range(7))


def test_the_cache_keeps_its_bound_and_one_larger_row_group_still_works(local: Place) -> None:
    local.write_table("a.parquet", table(2000), row_group_size=100)
    source = Counting(local.source)
    data = ParquetDataset(local.root, columns=["padding"], cache_bytes=50 * KIB, source=source)
    order = np.random.default_rng(0).permutation(2000).tolist()
    expected = table(2000)["padding"].to_pylist()
    for begin in range(0, 2000, 500):
        rows = data.__getitems__(order[begin : begin + 500])
        assert [row["padding"] for row in rows] == [expected[i] for i in order[begin : begin + 500]]
        kept = sum(t.nbytes for t in data.row_groups._cache.values())
        assert kept <= 50 * KIB
    assert max(source.reads[1:]) <= 50 * KIB


@pytest.mark.parametrize("window", [1, 7, 64, 1000])
def test_windows_are_cut_from_one_stream_over_rows_groups_and_files(
    place: Place, window: int
) -> None:
    generator = np.random.default_rng(2)
    rows = [generator.integers(0, 256, generator.integers(1, 50)) for _ in range(200)]
    for part in range(4):
        tokens = pa.array(rows[part * 50 : part * 50 + 50], pa.list_(pa.uint8()))
        place.write_table(f"{part}.parquet", pa.table({"tokens": tokens}), row_group_size=9)
    stream = np.concatenate(rows)
    data = TokenDataset(place.root, window=window, source=place.source)
    assert data.tokens == len(stream)
    assert len(data) == len(stream) // window
    order = generator.permutation(len(data)).tolist()
    for index, got in zip(order, data.__getitems__(order), strict=True):
        assert got.dtype == np.int64
        assert np.array_equal(got, stream[index * window : (index + 1) * window])


def test_empty_lists_are_refused_because_parquet_counts_them(place: Place) -> None:
    tokens = pa.array([[1, 2], [], [3]], pa.list_(pa.int32()))
    place.write_table("a.parquet", pa.table({"tokens": tokens}))
    with pytest.raises(ValueError, match="empty lists"):
        TokenDataset(place.root, window=2, source=place.source)[0]


def test_wrong_columns_and_files_are_named(place: Place) -> None:
    place.write_table("a.parquet", table(3))
    with pytest.raises(ValueError, match=r"no column 'nope'; it has id, text"):
        ParquetDataset(place.root, columns=["nope"], source=place.source)
    with pytest.raises(ValueError, match="windows need lists of integers"):
        TokenDataset(place.root, column="text", window=2, source=place.source)
    place.write("b.parquet", b"PAR1 cut short")
    with pytest.raises(ValueError, match=r"b\.parquet: not a parquet file"):
        ParquetDataset(place.root, source=place.source)


def test_an_index_outside_is_an_index_error(place: Place) -> None:
    place.write_table("a.parquet", table(3))
    data = ParquetDataset(place.root, source=place.source)
    for index in (3, -4):
        with pytest.raises(IndexError):
            data[index]


def test_a_copy_in_another_process_reads_the_same(local: Place) -> None:
    local.write_table("a.parquet", table(30), row_group_size=10)
    data = ParquetDataset(local.root, source=local.source)
    data[5]
    copy = pickle.loads(pickle.dumps(data))
    assert copy[5]["text"] == data[5]["text"]
    assert not pickle.loads(pickle.dumps(data)).row_groups._cache, "the cache is not carried along"
