"""Keys of the metadata key-value store: a prefix, then big-endian fields that sort as numbers.

One range of keys belongs to one kind of record, and everything that is read together lies together:
the entries of a directory, the write sessions of a file, the replay records of a client. No prefix
is the beginning of another one. The layout is drawn in `docs/design/formats.md` and pinned by
golden vectors; a prefix is never given a second meaning.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from fs3.ids import ChainId, InodeId, NodeId, RequestId, SessionId

INODE: Final = b"INOD"
ENTRY: Final = b"DENT"
SESSION: Final = b"SESS"
REPLAY: Final = b"IDEM"
GARBAGE: Final = b"GC"
COUNTER: Final = b"CNTR"

LOCK: Final = b"LOCK"
ATTRIBUTE: Final = b"XATR"
QUOTA: Final = b"QUOT"

NODE: Final = b"NODE"
CHAIN: Final = b"CHAIN"
TABLE: Final = b"TABL"
CONFIG: Final = b"CONF"
USER: Final = b"USER"
LEASE: Final = b"LEAS"

PREFIXES: Final = (
    INODE,
    ENTRY,
    SESSION,
    REPLAY,
    GARBAGE,
    COUNTER,
    LOCK,
    ATTRIBUTE,
    QUOTA,
    NODE,
    CHAIN,
    TABLE,
    CONFIG,
    USER,
    LEASE,
)
"""Every range in use or reserved (locks, extended attributes, quotas, users)."""

_ONE: Final = struct.Struct(">4sQ")
_TWO: Final = struct.Struct(">4sQQ")
_GARBAGE: Final = struct.Struct(">2sBQQQ")
_NODE: Final = struct.Struct(">4sI")
_CHAIN: Final = struct.Struct(">5sI")
_TABLE: Final = struct.Struct(">4sII")


class KeyRange(NamedTuple):
    """Keys with begin <= key < end."""

    begin: bytes
    end: bytes


class GarbageKind(IntEnum):
    """Background work on what the namespace no longer shows, in one queue per kind."""

    SUBTREE = 1
    """A removed directory whose entries are still to be dropped."""
    FILE = 2
    """A removed file whose chunks are still stored."""
    CUT = 3
    """A truncated file whose chunks beyond the cut are still stored."""


class GarbageKey(NamedTuple):
    """`version` is the truncate version under which chunks are cut or removed; 0 for a SUBTREE."""

    kind: GarbageKind
    due_ns: int
    inode: InodeId
    version: int


def prefix_range(prefix: bytes) -> KeyRange:
    """All keys that begin with `prefix`, which must not end in 0xFF."""
    return KeyRange(prefix, prefix[:-1] + bytes((prefix[-1] + 1,)))


def inode(inode: InodeId) -> bytes:
    return _ONE.pack(INODE, inode)


def entry(directory: InodeId, name: str) -> bytes:
    return _ONE.pack(ENTRY, directory) + name.encode()


def entries(directory: InodeId, after: str = "") -> KeyRange:
    """The entries of a directory in byte order of their names, those after `after`."""
    begin = _ONE.pack(ENTRY, directory)
    end = _ONE.pack(ENTRY, directory + 1)
    return KeyRange(begin + after.encode() + b"\0" if after else begin, end)


def entry_name(key: bytes) -> str:
    return key[_ONE.size :].decode()


def session(inode: InodeId, session: SessionId) -> bytes:
    return _TWO.pack(SESSION, inode, session)


def sessions(inode: InodeId) -> KeyRange:
    return KeyRange(_ONE.pack(SESSION, inode), _ONE.pack(SESSION, inode + 1))


def parse_session(key: bytes) -> tuple[InodeId, SessionId]:
    _, inode, session = _TWO.unpack(key)
    return InodeId(inode), SessionId(session)


def replay_floor(client: int) -> bytes:
    """Up to which request the replay records of a client were dropped; sorts before them."""
    return _ONE.pack(REPLAY, client)


def replay(client: int, request: RequestId) -> bytes:
    return _TWO.pack(REPLAY, client, request)


def replay_request(key: bytes) -> RequestId:
    return RequestId(_TWO.unpack(key)[2])


def replays(client: int, first: int, last: int) -> KeyRange:
    """Replay records of the requests first..last, both included."""
    return KeyRange(_TWO.pack(REPLAY, client, first), _TWO.pack(REPLAY, client, last) + b"\0")


def garbage(key: GarbageKey) -> bytes:
    return _GARBAGE.pack(GARBAGE, *key)


def garbage_due(kind: GarbageKind, from_ns: int, now_ns: int) -> KeyRange:
    """The work of one kind that was due from `from_ns` until now, oldest first."""
    return KeyRange(
        _GARBAGE.pack(GARBAGE, kind, from_ns, 0, 0),
        _GARBAGE.pack(GARBAGE, kind, now_ns + 1, 0, 0),
    )


def parse_garbage(key: bytes) -> GarbageKey:
    _, kind, due_ns, inode, version = _GARBAGE.unpack(key)
    return GarbageKey(GarbageKind(kind), due_ns, InodeId(inode), version)


def counter(name: str) -> bytes:
    return COUNTER + name.encode()


def node(node: NodeId) -> bytes:
    return _NODE.pack(NODE, node)


def chain(chain: ChainId) -> bytes:
    return _CHAIN.pack(CHAIN, chain)


def table(table: int, version: int) -> bytes:
    return _TABLE.pack(TABLE, table, version)


def config(name: str) -> bytes:
    return CONFIG + name.encode()


def lease(name: str) -> bytes:
    return LEASE + name.encode()
