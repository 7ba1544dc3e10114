"""What a liveness port says to whoever connects: one fixed record, then the connection is closed.

    magic 4 ("FS3L") | node id u32 | incarnation u64        little-endian, 16 bytes

The port is opened before a node serves and closed only when its process exits, so a refused
connection to it says that the process is gone (or that a firewall refuses: one refusal alone proves
nothing).
"""

import enum
import struct
from typing import Final

from fs3.ids import Incarnation, NodeId

_RECORD: Final = struct.Struct("<4sIQ")
_MAGIC: Final = b"FS3L"
SIZE: Final = _RECORD.size


class Outcome(enum.Enum):
    """What a liveness port did when it was asked; values as in the protocol."""

    REFUSED = 1
    ANSWERED = 2
    SILENT = 3


def encode(node: NodeId, incarnation: Incarnation) -> bytes:
    return _RECORD.pack(_MAGIC, node, incarnation)


def decode(data: bytes, node: NodeId) -> Incarnation | None:
    """The incarnation that answered for `node`; None when somebody else has the port now."""
    if len(data) != SIZE:
        return None
    magic, answered, incarnation = _RECORD.unpack(data)
    return Incarnation(incarnation) if (magic, answered) == (_MAGIC, node) else None
