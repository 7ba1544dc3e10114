"""Both frame codecs, native and Python, agree on everything that can travel."""

from hypothesis import given
from hypothesis import strategies as st

from fs3 import _native
from fs3.wire import frame as wire

frames = st.builds(
    wire.Frame,
    method=st.integers(0, 2**16 - 1),
    request_id=st.integers(0, 2**64 - 1),
    body=st.binary(max_size=200),
    bulk=st.binary(max_size=200),
    status=st.integers(0, 2**32 - 1),
    flags=st.sampled_from([0, wire.FLAG_RESPONSE, wire.FLAG_RESPONSE | wire.FLAG_TEXT]),
)


@given(frames)
def test_encodings_are_equal(frame: wire.Frame) -> None:
    encoded = wire.encode(frame)
    native = _native.encode_frame(
        frame.method, frame.request_id, frame.body, frame.bulk, frame.status, frame.flags
    )
    assert native == encoded
    assert wire.decode(encoded) == (frame, len(encoded))


@given(st.lists(frames, max_size=4), st.data())
def test_verdicts_are_equal(sent: list[wire.Frame], data: st.DataObject) -> None:
    stream = bytearray(b"".join(map(wire.encode, sent)))
    if stream and data.draw(st.booleans()):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert _native.scan_frames(bytes(stream)) == scan(bytes(stream))


def scan(stream: bytes) -> tuple[int, str]:
    count = 0
    while stream:
        try:
            _, size = wire.decode(stream)
        except wire.MalformedFrameError as refused:
            truncated = refused.reason is wire.Malformed.TRUNCATED
            return count, "none" if truncated else refused.reason.value
        count += 1
        stream = stream[size:]
    return count, "none"
