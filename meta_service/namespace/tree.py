"""The namespace as one transaction sees it: typed records instead of keys and bytes.

The only module that knows where inodes, entries, sessions and background work are stored. It keeps
no rule of its own; the rules are in the operations.
"""

import functools
from typing import Final

from msgspec.structs import replace

from fs3.errors import Corrupt, NotFound
from fs3.ids import InodeId, SessionId
from fs3.model.inode import Inode, Kind
from fs3.wire import keys, records
from fs3.wire.keys import GarbageKey, GarbageKind
from fs3.wire.records import EntryRecord, GarbageRecord, SessionRecord
from meta_service.kv.transaction import Transaction
from meta_service.namespace.inputs import Inputs

_DECODED_MAX: Final = 1 << 14

# Records are immutable, so decoding the same bytes may give the same object.
_decode_inode: Final = functools.lru_cache(_DECODED_MAX)(records.INODE.decode)
_decode_entry: Final = functools.lru_cache(_DECODED_MAX)(records.ENTRY.decode)
_encode_inode: Final = records.INODE.encode
_encode_entry: Final = records.ENTRY.encode


class Tree:
    """Attributes:
    inputs: what operations depend on besides the tree itself.
    inode_delta: inodes made less inodes dropped through this object.
    """

    __slots__ = ("_clear", "_get", "_set", "inode_delta", "inputs", "transaction")

    def __init__(self, transaction: Transaction, inputs: Inputs) -> None:
        self.transaction: Final = transaction
        self.inputs: Final = inputs
        self.inode_delta = 0
        self._get: Final = transaction.get
        self._set: Final = transaction.set
        self._clear: Final = transaction.clear

    def find(self, inode: InodeId) -> Inode | None:
        stored = self._get(keys.inode(inode))
        return None if stored is None else _decode_inode(stored)

    def inode(self, inode: InodeId) -> Inode:
        """Raises NotFound when the inode was removed (or never was)."""
        stored = self._get(keys.inode(inode))
        if stored is None:
            raise NotFound(f"inode {inode} does not exist; it was removed")
        return _decode_inode(stored)

    def named(self, entry: EntryRecord) -> Inode:
        """The inode of an entry. Raises Corrupt when there is none."""
        stored = self._get(keys.inode(entry.id))
        if stored is None:
            raise Corrupt(f"an entry names inode {entry.id}, which does not exist")
        return _decode_inode(stored)

    def put(self, inode: Inode) -> Inode:
        self._set(keys.inode(inode.id), _encode_inode(inode))
        return inode

    def make(self, inode: Inode) -> Inode:
        self.inode_delta += 1
        return self.put(inode)

    def drop(self, inode: InodeId) -> None:
        self.inode_delta -= 1
        self._clear(keys.inode(inode))

    def touch(self, directory: InodeId, links: int = 0) -> None:
        """Entries of the directory changed, and `links` more of them are directories."""
        before = self.inode(directory)
        now = self.inputs.now_ns
        self.put(replace(before, mtime_ns=now, ctime_ns=now, nlink=before.nlink + links))

    def entry(self, directory: InodeId, name: str) -> EntryRecord | None:
        stored = self._get(keys.entry(directory, name))
        return None if stored is None else _decode_entry(stored)

    def child(self, directory: InodeId, name: str) -> Inode | None:
        """The inode of an entry."""
        stored = self._get(keys.entry(directory, name))
        return None if stored is None else self.named(_decode_entry(stored))

    def put_entry(self, directory: InodeId, name: str, inode: InodeId, kind: Kind) -> None:
        self._set(keys.entry(directory, name), _encode_entry(EntryRecord(inode, kind)))

    def drop_entry(self, directory: InodeId, name: str) -> None:
        self._clear(keys.entry(directory, name))

    def entries(
        self, directory: InodeId, *, after: str = "", limit: int
    ) -> list[tuple[str, EntryRecord]]:
        begin, end = keys.entries(directory, after)
        return [
            (keys.entry_name(key), _decode_entry(stored))
            for key, stored in self.transaction.scan(begin, end, limit=limit)
        ]

    def is_empty(self, directory: InodeId) -> bool:
        begin, end = keys.entries(directory)
        return not self.transaction.scan(begin, end, limit=1)

    def session(self, inode: InodeId, session: SessionId) -> SessionRecord | None:
        stored = self._get(keys.session(inode, session))
        return None if stored is None else records.SESSION.decode(stored)

    def sessions(self, inode: InodeId, *, limit: int) -> list[tuple[SessionId, SessionRecord]]:
        begin, end = keys.sessions(inode)
        return [
            (keys.parse_session(key)[1], records.SESSION.decode(stored))
            for key, stored in self.transaction.scan(begin, end, limit=limit)
        ]

    def put_session(self, inode: InodeId, session: SessionId, record: SessionRecord) -> None:
        self._set(keys.session(inode, session), records.SESSION.encode(record))

    def drop_session(self, inode: InodeId, session: SessionId) -> None:
        self._clear(keys.session(inode, session))

    def queue(self, inode: Inode, kind: GarbageKind, due_ns: int) -> None:
        """Leaves work for the background jobs.

        A CUT is the pending one of the inode. A FILE is removed under a truncate version above any
        that its writers know, so that none of them writes to it afterwards.
        """
        version = {
            GarbageKind.SUBTREE: 0,
            GarbageKind.FILE: inode.truncate_version + 1,
            GarbageKind.CUT: inode.truncate_version,
        }[kind]
        record = GarbageRecord(inode.layout, inode.length)
        self._set(
            keys.garbage(GarbageKey(kind, due_ns, inode.id, version)),
            records.GARBAGE.encode(record),
        )
