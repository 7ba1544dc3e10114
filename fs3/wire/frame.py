"""The fs3rpc frame and the HELLO body, as Python sees them: for tests and for tools.

The twin of fs3/native/frame. Traffic itself never passes here; both codecs are held to the same
golden vectors (tests/golden/frames.txt), drawn in docs/design/formats.md.
"""

import enum
import struct
from dataclasses import dataclass, field
from typing import Final

from fs3._native import crc32c

MAGIC: Final = b"FS3R"
PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 1
BODY_LENGTH_MAX: Final = 16 << 20
BULK_LENGTH_MAX: Final = (64 << 20) + (1 << 20)

FLAG_RESPONSE: Final = 1
FLAG_TEXT: Final = 2
"""The body is a sentence about a failure, instead of the method's own encoding."""
FLAGS_KNOWN: Final = FLAG_RESPONSE | FLAG_TEXT

METHOD_HELLO: Final = 1
METHOD_PING: Final = 2

# magic, version, flags, method, request id, status, header length, body length, bulk length,
# bulk crc | body crc | reserved | header crc
_PREFIX: Final = struct.Struct("<4sBBHQIIIII")
_TAIL: Final = struct.Struct("<III")
HEADER_SIZE: Final = _PREFIX.size + _TAIL.size
_HEADER_CRC_OFFSET: Final = HEADER_SIZE - 4
assert HEADER_SIZE == 48

_HELLO: Final = struct.Struct("<HHHHQ16sQII")
HELLO_FIXED_SIZE: Final = _HELLO.size
HELLO_REASON_MAX: Final = 1024
assert HELLO_FIXED_SIZE == 48


class Malformed(enum.Enum):
    """Why a frame was refused; the names are those of the counters."""

    MAGIC = "magic"
    HEADER_CRC = "header_crc"
    PROTOCOL_VERSION = "protocol_version"
    HEADER_LENGTH = "header_length"
    FLAGS = "flags"
    RESERVED = "reserved"
    BODY_LENGTH = "body_length"
    BULK_LENGTH = "bulk_length"
    BODY_CRC = "body_crc"
    BULK_CRC = "bulk_crc"
    TRUNCATED = "truncated"


class MalformedFrameError(ValueError):
    """The bytes are not a frame."""

    def __init__(self, reason: Malformed) -> None:
        super().__init__(f"malformed frame: {reason.value}")
        self.reason = reason


@dataclass(frozen=True)
class Frame:
    """One frame; lengths and checksums belong to the encoding."""

    method: int
    request_id: int
    body: bytes = b""
    bulk: bytes = b""
    status: int = 0
    flags: int = 0
    protocol_version: int = PROTOCOL_MIN


def encode(frame: Frame) -> bytes:
    """Returns header, body and bulk as they travel."""
    prefix = _PREFIX.pack(
        MAGIC,
        frame.protocol_version,
        frame.flags,
        frame.method,
        frame.request_id,
        frame.status,
        HEADER_SIZE,
        len(frame.body),
        len(frame.bulk),
        crc32c(frame.bulk),
    )
    head = prefix + struct.pack("<II", crc32c(frame.body, crc32c(prefix)), 0)
    return head + struct.pack("<I", crc32c(head)) + frame.body + frame.bulk


def decode(data: bytes) -> tuple[Frame, int]:
    """Decodes the frame at the beginning of `data`.

    Returns:
        The frame and the number of bytes it took.

    Raises:
        MalformedFrameError: with the reason; TRUNCATED when more bytes could make it whole.
    """
    header = data[:HEADER_SIZE]
    if len(header) < HEADER_SIZE:
        raise MalformedFrameError(Malformed.TRUNCATED)
    magic, version, flags, method, request_id, status, header_length, body_length, *bulk_fields = (
        _PREFIX.unpack_from(header)
    )
    bulk_length, bulk_crc = bulk_fields
    body_crc, reserved, header_crc = _TAIL.unpack_from(header, _PREFIX.size)
    _refuse(magic != MAGIC, Malformed.MAGIC)
    _refuse(header_crc != crc32c(header[:_HEADER_CRC_OFFSET]), Malformed.HEADER_CRC)
    _refuse(not PROTOCOL_MIN <= version <= PROTOCOL_MAX, Malformed.PROTOCOL_VERSION)
    _refuse(header_length != HEADER_SIZE, Malformed.HEADER_LENGTH)
    _refuse(flags & ~FLAGS_KNOWN != 0, Malformed.FLAGS)
    _refuse(reserved != 0, Malformed.RESERVED)
    _refuse(body_length > BODY_LENGTH_MAX, Malformed.BODY_LENGTH)
    _refuse(bulk_length > BULK_LENGTH_MAX, Malformed.BULK_LENGTH)

    end_of_body = HEADER_SIZE + body_length
    end = end_of_body + bulk_length
    body, bulk = data[HEADER_SIZE:end_of_body], data[end_of_body:end]
    _refuse(len(body) < body_length, Malformed.TRUNCATED)
    _refuse(crc32c(body, crc32c(header[: _PREFIX.size])) != body_crc, Malformed.BODY_CRC)
    _refuse(len(bulk) < bulk_length, Malformed.TRUNCATED)
    _refuse(crc32c(bulk) != bulk_crc, Malformed.BULK_CRC)
    return Frame(method, request_id, body, bulk, status, flags, version), end


def _refuse(condition: bool, reason: Malformed) -> None:
    if condition:
        raise MalformedFrameError(reason)


class PeerKind(enum.IntEnum):
    CLIENT = 1
    STORAGE = 2
    META = 3


@dataclass(frozen=True)
class Hello:
    """Body of the first frame in each direction."""

    cluster_id: bytes
    kind: PeerKind
    node_id: int
    incarnation: int
    features: int = 0
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX
    reason: str = field(default="")


def encode_hello(hello: Hello) -> bytes:
    reason = hello.reason.encode()[:HELLO_REASON_MAX]
    fixed = _HELLO.pack(
        HELLO_FIXED_SIZE,
        hello.protocol_min,
        hello.protocol_max,
        hello.kind,
        hello.features,
        hello.cluster_id,
        hello.incarnation,
        hello.node_id,
        len(reason),
    )
    return fixed + reason


def decode_hello(body: bytes) -> Hello:
    """Decodes a HELLO of this or a later version, whose fields are appended to ours.

    Raises:
        ValueError: the lengths do not add up.
    """
    if len(body) < HELLO_FIXED_SIZE:
        raise ValueError("HELLO is too short")
    length, low, high, kind, features, cluster_id, incarnation, node_id, reason_length = (
        _HELLO.unpack_from(body)
    )
    if length < HELLO_FIXED_SIZE or len(body) != length + reason_length:
        raise ValueError("HELLO has inconsistent lengths")
    if reason_length > HELLO_REASON_MAX:
        raise ValueError("HELLO has inconsistent lengths")
    reason = body[length:].decode(errors="replace")
    return Hello(cluster_id, PeerKind(kind), node_id, incarnation, features, low, high, reason)
