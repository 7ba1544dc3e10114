"""Keys and values of the metadata store are a format: these bytes stay readable for ever.

`metadata_records.txt` has one line per example, its name and its bytes in hexadecimal.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fs3.errors import Corrupt
from fs3.ids import ChainId, InodeId, NodeId, RequestId, SessionId
from fs3.model.inode import Inode, Kind, Layout
from fs3.wire import keys, records
from fs3.wire.keys import GarbageKey, GarbageKind
from fs3.wire.records import (
    CounterRecord,
    EntryRecord,
    GarbageRecord,
    ReplayFloor,
    ReplayRecord,
    SessionRecord,
)

GOLDEN = dict(
    line.split(" ", 1)
    for line in (Path(__file__).parent / "metadata_records.txt").read_text().splitlines()
)

LAYOUT = Layout(table=1, table_version=3, chunk_size=1 << 20, stripe=8, seed=(1 << 64) - 2)
TIMES: dict[str, Any] = {"atime_ns": 1_700_000_000_000_000_001, "mtime_ns": 2, "ctime_ns": -3}

KEYS = {
    "inode": keys.inode(InodeId(0x0102030405060708)),
    "entry": keys.entry(InodeId(1), "é.txt"),
    "session": keys.session(InodeId(2), SessionId((1 << 63) + 1)),
    "replay-floor": keys.replay_floor(77),
    "replay": keys.replay(77, RequestId(258)),
    "garbage": keys.garbage(GarbageKey(GarbageKind.CUT, 1_700_000_000_000_000_000, InodeId(9), 4)),
    "counter": keys.counter("next-inode"),
    "node": keys.node(NodeId(5)),
    "chain": keys.chain(ChainId(6)),
    "table": keys.table(1, 3),
    "config": keys.config("storage"),
    "lease": keys.lease("manager"),
}

VALUES: dict[str, tuple[records.Codec[Any], Any]] = {
    "inode-file": (
        records.INODE,
        Inode(
            InodeId(2), Kind.FILE, 0o4755, 1000, 100, 2, 1 << 40, 7, layout=LAYOUT, pending_cut=5,
            **TIMES,
        ),
    ),
    "inode-directory": (
        records.INODE,
        Inode(InodeId(1), Kind.DIRECTORY, 0o1777, 0, 0, 3, layout=LAYOUT, parent=1, **TIMES),
    ),
    "inode-symlink": (
        records.INODE,
        Inode(InodeId(3), Kind.SYMLINK, 0o777, 0, 0, 1, 4, target="../é", **TIMES),
    ),
    "entry": (records.ENTRY, EntryRecord(InodeId(1 << 40), Kind.FILE)),
    "session": (records.SESSION, SessionRecord(client=(1 << 63) - 1, opened_ns=5)),
    "replay": (records.REPLAY, ReplayRecord(time_ns=5, status=2, body=b"\x92\x02\xa1x")),
    "replay-floor": (records.REPLAY_FLOOR, ReplayFloor(time_ns=5, floor=64)),
    "garbage": (records.GARBAGE, GarbageRecord(layout=LAYOUT, length=100, attempts=2)),
    "counter": (records.COUNTER, CounterRecord(-1)),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_keys(name: str) -> None:
    assert KEYS[name].hex() == GOLDEN[f"key-{name}"]


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    codec, record = VALUES[name]
    assert codec.encode(record).hex() == GOLDEN[f"value-{name}"]
    assert codec.decode(bytes.fromhex(GOLDEN[f"value-{name}"])) == record


def test_nothing_else_is_pinned() -> None:
    assert set(GOLDEN) == {f"key-{n}" for n in KEYS} | {f"value-{n}" for n in VALUES}


def test_fields_left_out_by_an_older_version_get_their_defaults() -> None:
    older = records.FORMAT + msgspec.msgpack.encode([2, 1, 420, 0, 0, 1])
    assert records.INODE.decode(older) == Inode(InodeId(2), Kind.FILE, 0o644, 0, 0, 1)


@pytest.mark.parametrize("stored", [b"", b"\x02\x91\x01", b"\x01", b"\x01\x90", b"\x01\xc1"])
def test_what_is_no_record_is_corrupt(stored: bytes) -> None:
    with pytest.raises(Corrupt, match="a stored CounterRecord"):
        records.COUNTER.decode(stored)


def test_no_prefix_begins_another() -> None:
    for one in keys.PREFIXES:
        assert not [other for other in keys.PREFIXES if other != one and other.startswith(one)]


def test_keys_sort_as_what_they_mean() -> None:
    numbers = [1, 2, 255, 256, 1 << 32, (1 << 64) - 1]
    inodes = [keys.inode(InodeId(n)) for n in numbers]
    assert inodes == sorted(inodes)
    due = [keys.garbage(GarbageKey(GarbageKind.FILE, n, InodeId(1), 0)) for n in numbers]
    assert due == sorted(due)
    begin, end = keys.garbage_due(GarbageKind.FILE, 0, 256)
    assert [begin <= key < end for key in due] == [True] * 4 + [False] * 2
    names = ["a", "a\x01", "ab", "b", "é", "日"]
    entries = [keys.entry(InodeId(5), name) for name in names]
    assert entries == sorted(entries)
    begin, end = keys.entries(InodeId(5), after="ab")
    assert [begin <= key < end for key in entries] == [False] * 3 + [True] * 3
    assert keys.replay_floor(7) < keys.replay(7, RequestId(0)) < keys.replay_floor(8)


def test_keys_are_read_back() -> None:
    assert keys.entry_name(KEYS["entry"]) == "é.txt"
    assert keys.parse_session(KEYS["session"]) == (2, (1 << 63) + 1)
    assert keys.replay_request(KEYS["replay"]) == 258
    garbage = GarbageKey(GarbageKind.CUT, 1_700_000_000_000_000_000, InodeId(9), 4)
    assert keys.parse_garbage(KEYS["garbage"]) == garbage
