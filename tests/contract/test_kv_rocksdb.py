"""What only the embedded engine promises: it survives its process, and owns its directory."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fs3.errors import Busy
from meta_service.kv.rocksdb import RocksDbEngine

ROOT = Path(__file__).parents[2]

WRITER = """
import os, sys
from meta_service.kv.rocksdb import RocksDbEngine
engine = RocksDbEngine(sys.argv[1])
def body(t):
    n = int(t.get(b"n") or b"0") + 1
    t.set(b"n", b"%d" % n)
    t.set(b"left%08d" % n, b"x" * 100)
    t.set(b"right%08d" % n, b"y" * 100)
    t.clear_range(b"left%08d" % (n - 100), b"left%08d" % (n - 99))
    return n
while True:
    os.write(1, b"%d\\n" % engine.transact(body))
"""


def test_kill_9_keeps_every_commit_whole(tmp_path: Path) -> None:
    directory = str(tmp_path / "kv")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, directory], stdout=subprocess.PIPE, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(1000)]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
    acknowledged = int([line for line in lines if line.endswith(b"\n")][-1])
    engine = RocksDbEngine(directory)
    n, left, right = engine.transact(
        lambda t: (
            int(t.get(b"n") or b"0"),
            t.scan(b"left", b"lefu", limit=1 << 20),
            t.scan(b"right", b"righu", limit=1 << 20),
        )
    )
    engine.close()
    assert n in (acknowledged, acknowledged + 1)
    assert len(right) == n
    assert [key for key, _ in left] == [b"left%08d" % i for i in range(n - 99, n + 1)]


def test_reopened_data_is_there(tmp_path: Path) -> None:
    engine = RocksDbEngine(str(tmp_path / "kv"))
    engine.transact(lambda t: t.set(b"a", b"1"))
    engine.close()
    engine.close()
    engine = RocksDbEngine(str(tmp_path / "kv"))
    assert engine.transact(lambda t: t.get(b"a")) == b"1"
    engine.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    engine = RocksDbEngine(str(tmp_path / "kv"))
    with pytest.raises(Busy, match="in use by another process"):
        RocksDbEngine(str(tmp_path / "kv"))
    engine.close()


def test_a_transaction_inside_a_transaction_is_a_defect(tmp_path: Path) -> None:
    engine = RocksDbEngine(str(tmp_path / "kv"))
    with pytest.raises(AssertionError, match="inside a transaction"):
        engine.transact(lambda _: engine.transact(lambda t: t.get(b"a")))
    engine.close()


def test_the_cache_stays_within_its_bound_and_correct(tmp_path: Path) -> None:
    engine = RocksDbEngine(str(tmp_path / "kv"), cached_keys_max=8)
    for i in range(100):
        engine.transact(lambda t, i=i: t.set(b"%03d" % i, b"%d" % i))  # type: ignore[misc]
    for i in range(100):
        assert engine.transact(lambda t, i=i: t.get(b"%03d" % i)) == b"%d" % i  # type: ignore[misc]
    engine.transact(lambda t: t.clear_range(b"010", b"020"))
    assert engine.transact(lambda t: [t.get(b"%03d" % i) for i in (9, 10, 19, 20)]) == [
        b"9",
        None,
        None,
        b"20",
    ]
    assert len(engine._committed._cache) <= 8
    engine.close()


def test_commits_are_synced_within_the_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = RocksDbEngine(str(tmp_path / "kv"), sync_interval_s=0.01)
    synced = threading.Event()
    original = RocksDbEngine.sync

    def sync(self: RocksDbEngine) -> None:
        original(self)
        synced.set()

    monkeypatch.setattr(RocksDbEngine, "sync", sync)
    engine.transact(lambda t: t.set(b"a", b"1"))
    assert synced.wait(5)
    engine.close()
