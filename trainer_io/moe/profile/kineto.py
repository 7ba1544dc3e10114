"""Reads Kineto (torch.profiler) Chrome traces, plain or gzip, with bounds and clear errors."""

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

TRACE_BYTES_MAX: Final = 4 << 30
"""Largest unpacked trace that is read; a longer one is likely a mistake or a bomb."""

TIME_NS_MAX: Final = 1 << 62
"""Times and their differences fit into 64 bits."""

GPU_CATEGORIES: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


class TraceError(ValueError):
    """The file is not a readable trace; the message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """One kernel, copy or fill on a GPU stream; times in nanoseconds."""

    name: str
    category: str
    device: int
    stream: int
    begin_ns: int
    end_ns: int
    grid: tuple[int, ...] = ()

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, slots=True)
class Annotation:
    """A named phase from the program (`record_function`), on the CPU's clock."""

    name: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's trace.

    Attributes:
        gpu: by begin time.
        rank, world_size: from the trace's distributed information, 0 and 1 without.
        gpu_name, sm_count: of the first device, empty and 0 when not recorded.
    """

    path: str
    gpu: tuple[GpuEvent, ...]
    annotations: tuple[Annotation, ...]
    rank: int
    world_size: int
    gpu_name: str
    sm_count: int


def read_trace(path: str | Path) -> Trace:
    """Reads a trace file.

    Raises:
        FileNotFoundError: there is no such file.
        TraceError: not gzip though named so, cut short, not JSON, or without GPU events.
    """
    raw = _unpack(Path(path))
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(
            f"{path}: not a complete JSON trace ({error}); was the file cut short? Export it again"
        ) from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise TraceError(f"{path}: no traceEvents; this is not a Kineto or Chrome trace")
    try:
        trace = _trace(str(path), document if isinstance(document, dict) else {}, events)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TraceError(f"{path}: a malformed event ({error!r}); export the trace again") from None
    if not trace.gpu:
        raise TraceError(
            f"{path}: no GPU events; record with ProfilerActivity.CUDA on a machine with a GPU"
        )
    return trace


def _trace(path: str, document: dict[str, Any], events: list[dict[str, Any]]) -> Trace:
    gpu = sorted(
        (_gpu_event(e) for e in events if e.get("cat") in GPU_CATEGORIES and e["ph"] == "X"),
        key=lambda event: (event.begin_ns, event.end_ns),
    )
    annotations = tuple(
        Annotation(str(e["name"]), *_times(e))
        for e in events
        if e.get("cat") == "user_annotation" and e["ph"] == "X"
    )
    distributed = document.get("distributedInfo") or {}
    device = (document.get("deviceProperties") or [{}])[0]
    return Trace(
        path=path,
        gpu=tuple(gpu),
        annotations=annotations,
        rank=int(distributed.get("rank", 0)),
        world_size=int(distributed.get("world_size", 1)),
        gpu_name=str(device.get("name", "")),
        sm_count=int(device.get("numSms", 0)),
    )


def write_trace(path: str | Path, document: dict[str, Any]) -> None:
    """Writes a Chrome trace that Perfetto and chrome://tracing open, gzip when named `.gz`."""
    text = json.dumps(document).encode()
    Path(path).write_bytes(gzip.compress(text) if str(path).endswith(".gz") else text)


def _unpack(path: Path) -> bytes:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            raw = stream.read(TRACE_BYTES_MAX + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: the gzip file is damaged or cut short ({error})") from None
    if len(raw) > TRACE_BYTES_MAX:
        raise TraceError(f"{path}: over {TRACE_BYTES_MAX >> 30} GiB unpacked; record fewer steps")
    return raw


def _times(event: dict[str, Any]) -> tuple[int, int]:
    """Begin and end in nanoseconds; traces carry microseconds, as integer or fraction."""
    begin = round(event["ts"] * 1000)
    duration = round(event["dur"] * 1000)
    if duration < 0:
        raise ValueError(f"negative duration of {event.get('name')!r}")
    if not -TIME_NS_MAX < begin <= begin + duration < TIME_NS_MAX:
        raise ValueError(f"time {begin} ns of {event.get('name')!r} is out of range")
    return begin, begin + duration


def _gpu_event(event: dict[str, Any]) -> GpuEvent:
    arguments = event.get("args") or {}
    begin, end = _times(event)
    return GpuEvent(
        name=str(event["name"]),
        category=event["cat"],
        device=int(arguments.get("device", event.get("pid", 0))),
        stream=int(arguments.get("stream", event.get("tid", 0))),
        begin_ns=begin,
        end_ns=end,
        grid=tuple(int(extent) for extent in arguments.get("grid") or ()),
    )
