"""The embedded key-value store: order, atomicity, locking, and what a kill -9 leaves."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fs3._native import NativeError, RocksDb

NOT_FOUND, BUSY, UNAVAILABLE = 2, 9, 10


@pytest.fixture
def db(tmp_path: Path) -> Iterator[RocksDb]:
    database = RocksDb.open(str(tmp_path / "kv"))
    yield database
    database.close()


def test_get_put_delete(db: RocksDb) -> None:
    db.write([(b"a", b"1"), (b"b\x00", b""), (b"c", b"\xff" * 1000)])
    assert db.get(b"a") == b"1"
    assert db.get(b"b\x00") == b""
    assert db.multi_get([b"c", b"missing", b"a"]) == [b"\xff" * 1000, None, b"1"]
    db.write([(b"a", None), (b"missing", None)])
    assert db.get(b"a") is None


def test_entries_apply_in_order_after_the_ranges(db: RocksDb) -> None:
    db.write([(b"k1", b"old"), (b"k2", b"old"), (b"k3", b"old")])
    db.write([(b"k1", b"x"), (b"k1", b"new"), (b"k9", None)], delete_ranges=[(b"k1", b"k3")])
    assert db.scan(b"", None, 10) == [(b"k1", b"new"), (b"k3", b"old")]


def test_scan_is_half_open_limited_and_reversible(db: RocksDb) -> None:
    keys = [b"%03d" % i for i in range(100)]
    db.write([(key, key) for key in reversed(keys)])
    assert [k for k, _ in db.scan(b"010", b"020", 100)] == keys[10:20]
    assert [k for k, _ in db.scan(b"010", b"020", 3)] == keys[10:13]
    assert [k for k, _ in db.scan(b"010", b"020", 3, reverse=True)] == keys[19:16:-1]
    assert [k for k, _ in db.scan(b"098", None, 100, reverse=True)] == [b"099", b"098"]
    assert db.scan(b"5", b"5", 10) == []


def test_second_open_is_busy_and_names_the_path(db: RocksDb, tmp_path: Path) -> None:
    with pytest.raises(NativeError, match=r"kv is in use by another process") as caught:
        RocksDb.open(str(tmp_path / "kv"))
    assert caught.value.code == BUSY
    db.close()
    RocksDb.open(str(tmp_path / "kv")).close()


def test_open_without_create_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(NativeError) as caught:
        RocksDb.open(str(tmp_path / "none"), create=False)
    assert caught.value.code == NOT_FOUND
    assert not (tmp_path / "none").exists()


def test_a_closed_handle_is_unavailable(db: RocksDb) -> None:
    db.close()
    db.close()
    with pytest.raises(NativeError, match="closed") as caught:
        db.get(b"a")
    assert caught.value.code == UNAVAILABLE


def test_error_carries_code_and_message() -> None:
    error = NativeError(BUSY, "in use")
    assert (error.code, error.message, str(error)) == (BUSY, "in use", "in use")


WRITER = """
import os, sys
from fs3._native import RocksDb
db = RocksDb.open(sys.argv[1], write_buffer_bytes=64 << 10)
i = 0
while True:
    db.write([(b"left%08d" % i, b"x" * 100), (b"right%08d" % i, b"y" * 100)])
    os.write(1, b"%08d\\n" % i)
    i += 1
"""


def test_kill_9_keeps_every_acknowledged_batch_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "kv")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(3000)]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
    acknowledged = int([line for line in lines if line.endswith(b"\n")][-1])
    db = RocksDb.open(path, create=False)
    left = db.scan(b"left", b"lefu", 1 << 30)
    right = db.scan(b"right", b"righu", 1 << 30)
    db.close()
    assert acknowledged >= 2999
    assert len(left) == len(right)  # a batch is whole or absent
    assert len(left) in (acknowledged + 1, acknowledged + 2)
    assert left[acknowledged][0] == b"left%08d" % acknowledged
