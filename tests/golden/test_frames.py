"""The Python frame codec against the vectors that the native codec is held to as well."""

from pathlib import Path

import pytest

from fs3.wire import frame as wire

VECTORS = Path(__file__).with_name("frames.txt")

Block = dict[str, str]


def blocks(kind: str) -> list[Block]:
    text = VECTORS.read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    parsed = [fields(block) for block in "\n".join(lines).strip().split("\n\n")]
    return [block for block in parsed if kind in block]


def fields(block: str) -> Block:
    return {name: value for name, _, value in (line.partition(" ") for line in block.splitlines())}


def frame_of(block: Block) -> wire.Frame:
    return wire.Frame(
        method=int(block["method"]),
        request_id=int(block["request_id"]),
        body=bytes.fromhex(block["body"]),
        bulk=bytes.fromhex(block["bulk"]),
        status=int(block["status"]),
        flags=int(block["flags"]),
        protocol_version=int(block["protocol_version"]),
    )


def test_vectors_are_there() -> None:
    assert len(blocks("frame")) >= 6
    reasons = {block["reason"] for block in blocks("malformed")}
    assert reasons == {reason.value for reason in wire.Malformed} - {"truncated"}


@pytest.mark.parametrize("block", blocks("frame"), ids=lambda block: block["frame"])
def test_frame(block: Block) -> None:
    encoded = bytes.fromhex(block["encoded"])
    assert wire.encode(frame_of(block)) == encoded
    assert wire.decode(encoded + b"next") == (frame_of(block), len(encoded))


@pytest.mark.parametrize("block", blocks("malformed"), ids=lambda block: block["malformed"])
def test_malformed(block: Block) -> None:
    with pytest.raises(wire.MalformedFrameError) as refused:
        wire.decode(bytes.fromhex(block["encoded"]))
    assert refused.value.reason.value == block["reason"]


def test_every_cut_is_truncated() -> None:
    encoded = bytes.fromhex(blocks("frame")[4]["encoded"])
    for length in range(len(encoded)):
        with pytest.raises(wire.MalformedFrameError) as refused:
            wire.decode(encoded[:length])
        assert refused.value.reason is wire.Malformed.TRUNCATED


def test_hello_round_trip_and_appended_fields() -> None:
    hello = wire.Hello(b"0123456789abcdef", wire.PeerKind.META, 9, 10, 3, reason="no")
    encoded = wire.encode_hello(hello)
    assert wire.decode_hello(encoded) == hello
    fixed, reason = encoded[: wire.HELLO_FIXED_SIZE], encoded[wire.HELLO_FIXED_SIZE :]
    longer = bytes([56, 0]) + fixed[2:] + b"appended" + reason
    assert wire.decode_hello(longer) == hello
    with pytest.raises(ValueError, match="too short"):
        wire.decode_hello(encoded[:40])
    with pytest.raises(ValueError, match="inconsistent"):
        wire.decode_hello(encoded + b"x")
