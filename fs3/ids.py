"""Identifiers of the whole system; the native twins are in `fs3/native/base/ids.h`.

Each is a distinct type, so that two `int` parameters side by side are never exchanged unnoticed.
"""

import secrets
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, NewType

ClusterId = NewType("ClusterId", bytes)
"""16 random bytes, chosen when a cluster is formatted."""

NodeId = NewType("NodeId", int)
"""u32, given by the cluster manager at first registration and stored in the node's directory."""

Incarnation = NewType("Incarnation", int)
"""u64, drawn anew each time a process starts: a restarted peer is never taken for the old one."""

TargetId = NewType("TargetId", int)
"""u64: node << 32 | disk << 16 | index."""

ChainId = NewType("ChainId", int)
ChainVersion = NewType("ChainVersion", int)
ChainSequence = NewType("ChainSequence", int)
InodeId = NewType("InodeId", int)
SessionId = NewType("SessionId", int)
RequestId = NewType("RequestId", int)

ROOT_INODE: Final = InodeId(1)
UNKNOWN_CLUSTER: Final = ClusterId(bytes(16))
"""Sent by a peer that does not know the cluster yet; the answer names the real one."""

_CHUNK: Final = struct.Struct(">QIHH")


@dataclass(frozen=True, slots=True, order=True)
class ChunkId:
    """One chunk of a file. Big-endian bytes, so that a file's chunks sort together."""

    inode: InodeId
    index: int
    generation: int = 0
    shard: int = 0

    def encode(self) -> bytes:
        return _CHUNK.pack(self.inode, self.index, self.generation, self.shard)

    @classmethod
    def decode(cls, data: bytes) -> "ChunkId":
        inode, index, generation, shard = _CHUNK.unpack(data)
        return cls(InodeId(inode), index, generation, shard)


class Version(NamedTuple):
    """The version of a chunk, compared as a pair: a sequence alone says nothing across chains."""

    chain_version: ChainVersion
    sequence: ChainSequence


def target_id(node: NodeId, disk: int, index: int) -> TargetId:
    if not (0 <= node < 1 << 32 and 0 <= disk < 1 << 16 and 0 <= index < 1 << 16):
        raise ValueError(f"target ({node}, {disk}, {index}) is outside 32, 16 and 16 bits")
    return TargetId(node << 32 | disk << 16 | index)


def node_of(target: TargetId) -> NodeId:
    return NodeId(target >> 32)


def new_incarnation() -> Incarnation:
    """A fresh non-zero incarnation of 63 bits: positive in every language."""
    return Incarnation(secrets.randbits(63) | 1)


def new_cluster_id() -> ClusterId:
    return ClusterId(secrets.token_bytes(16))
