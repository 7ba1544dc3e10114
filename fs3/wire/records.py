"""Values of the metadata key-value store: a format byte, then a msgpack array.

Arrays are only ever appended to, each new field with a default, so that records written by an older
version stay readable; anything else gets a new format byte. Keys are in `fs3.wire.keys`; an example
of every record is pinned by a golden vector.
"""

from typing import Final, Generic, TypeVar

import msgspec

from fs3.errors import Corrupt
from fs3.ids import InodeId
from fs3.model.inode import Inode, Kind, Layout

T = TypeVar("T", bound=msgspec.Struct)

FORMAT: Final = b"\x01"

_encode: Final = msgspec.msgpack.Encoder().encode


class EntryRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a name in a directory stands for."""

    id: InodeId
    kind: Kind


class SessionRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One open for writing.

    Attributes:
        client: incarnation that opened it; when that is gone the session is pruned.
    """

    client: int
    opened_ns: int


class ReplayRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of one mutation, so that a retry of its request gets the same."""

    time_ns: int
    status: int
    body: bytes


class ReplayFloor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Requests up to `floor` were acknowledged by their client: a late copy is refused."""

    time_ns: int
    floor: int


class Stamped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What replay records and floors have in common."""

    time_ns: int


class GarbageRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Background work; which one is in the key.

    Attributes:
        layout: where the chunks lie, for a FILE and a CUT.
        length: of the removed file, or where it was cut.
        attempts: how often the work failed so far.
    """

    layout: Layout | None = None
    length: int = 0
    attempts: int = 0


class CounterRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    value: int


class Codec(Generic[T]):
    """Between a record and its stored bytes."""

    def __init__(self, kind: type[T]) -> None:
        self._name: Final = kind.__name__
        self._decode: Final = msgspec.msgpack.Decoder(kind).decode

    def encode(self, record: T) -> bytes:
        return FORMAT + _encode(record)

    def decode(self, data: bytes) -> T:
        """Raises Corrupt when the bytes are not such a record."""
        if data[:1] != FORMAT:
            raise Corrupt(
                f"a stored {self._name} has format {data[:1].hex() or 'none'}: "
                f"this version reads {FORMAT.hex()}"
            )
        try:
            return self._decode(data[1:])
        except msgspec.MsgspecError as error:
            raise Corrupt(f"a stored {self._name} is not readable: {error}") from error


INODE: Final = Codec(Inode)
ENTRY: Final = Codec(EntryRecord)
SESSION: Final = Codec(SessionRecord)
REPLAY: Final = Codec(ReplayRecord)
REPLAY_FLOOR: Final = Codec(ReplayFloor)
STAMPED: Final = Codec(Stamped)
GARBAGE: Final = Codec(GarbageRecord)
COUNTER: Final = Codec(CounterRecord)
