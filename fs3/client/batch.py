"""read_many: thousands of samples of many files in one native call, straight into caller memory.

Files are opened together in one metadata batch and remembered for `open_cache_s`, which bounds how
long a file that was replaced under its name is still read as it was. Samples are described by four
numpy columns, so the cost per sample in Python is a few hundred nanoseconds.
"""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fs3.client import fork
from fs3.client.connection import Link
from fs3.client.handle import Handle
from fs3.client.path import relative
from fs3.client.ports import IO_REQUEST, IoArray
from fs3.errors import Fs3Error, InvalidArgument, StaleHandle
from fs3.ids import ROOT_INODE
from fs3.wire import metadata as wire

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer[Any]]
Sample = tuple[str, int, int]
"""(path, offset, length) in bytes."""

_CUTS_MAX: Final = 16


class Reader:
    """Reads batches of samples and remembers the files it has opened. Thread-safe."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[Handle, float]] = {}
        fork.register(self)

    def read_samples(self, samples: Sequence[Sample], into: object | None) -> list[Bytes]:
        """One array per sample, all views of one buffer; shorter where the file ends."""
        if not samples:
            return []
        paths, offsets, lengths = zip(*samples, strict=True)
        handles = self._handles(dict.fromkeys(paths))
        requests, total = _requests(np.asarray(offsets), np.asarray(lengths))
        numbers = {path: handle.number for path, handle in handles.items()}
        requests["handle"] = [numbers[path] for path in paths]
        buffer = _destination(into, total)
        filled = read_requests(self._link, requests, buffer, [handles[path] for path in paths])
        starts = requests["buffer_offset"].tolist()
        return [buffer[s : s + n] for s, n in zip(starts, filled, strict=True)]

    def read_columns(
        self, path: str, offsets: Integers, lengths: int | Integers, into: object | None
    ) -> Bytes | list[Bytes]:
        """Samples of one file. Equal lengths give one array with a row per sample."""
        handle = self._handles({path: None})[path]
        return read_columns(handle, offsets, lengths, into)

    def close(self) -> None:
        with self._lock:
            self._opened = {}

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()

    def _handles(self, paths: dict[str, None]) -> dict[str, Handle]:
        """Open files by path; those not known, or not fresh, are opened together."""
        now = time.monotonic()
        with self._lock:
            known = {p: o[0] for p in paths if (o := self._opened.get(p)) and o[1] > now}
        missing = [path for path in paths if path not in known]
        return known | self._open(missing) if missing else known

    def _open(self, paths: Sequence[str]) -> dict[str, Handle]:
        connection = self._link.get()
        requests = [wire.Open(ROOT_INODE, relative(path), 0) for path in paths]
        replies = connection.metadata.call_many(requests, wire.Opened, paths)
        for reply in replies:
            if isinstance(reply, Fs3Error):
                raise reply
        until = time.monotonic() + connection.config.open_cache_s
        with self._lock:
            handles = {}
            for path, reply in zip(paths, replies, strict=True):
                assert isinstance(reply, wire.Opened), "errors were raised above"
                handles[path] = self._renew(path, reply)
                self._opened[path] = handles[path], until
            self._forget(connection.config.open_cache_files)
        return handles

    def _renew(self, path: str, opened: wire.Opened) -> Handle:
        """The remembered handle when the name still means the same file."""
        old = self._opened.pop(path, None)
        if old is not None and old[0].inode.id == opened.inode.id:
            old[0].adopt(opened.inode)
            return old[0]
        return Handle(self._link, path, opened)

    def _forget(self, files_max: int) -> None:
        while len(self._opened) > files_max:
            oldest = next(iter(self._opened))
            del self._opened[oldest]


def read_columns(
    handle: Handle, offsets: Integers, lengths: int | Integers, into: object | None
) -> Bytes | list[Bytes]:
    """Many samples of one open file.

    Returns:
        An array of shape (samples, length) when `lengths` is one number, else a list of arrays that
        are shorter where the file ends.

    Raises:
        InvalidArgument: equal lengths were asked for and a sample ends behind the file.
    """
    offsets = np.asarray(offsets)
    requests, total = _requests(offsets, np.asarray(lengths))
    requests["handle"] = handle.number
    buffer = _destination(into, total)
    filled = read_requests(handle.link, requests, buffer, [handle] * len(requests))
    if not isinstance(lengths, int | np.integer):
        starts = requests["buffer_offset"].tolist()
        return [buffer[s : s + n] for s, n in zip(starts, filled, strict=True)]
    for i, count in enumerate(filled):
        if count < lengths:
            raise InvalidArgument(
                f"{handle.path}: sample {i} at {offsets[i]} ends behind the file "
                f"({handle.length} bytes); pass an array of lengths for samples of unequal size"
            )
    return buffer[:total].reshape(len(requests), int(lengths))


def read_requests(
    link: Link, requests: IoArray, buffer: Bytes, handles: Sequence[Handle]
) -> list[int]:
    """Reads all of them; the bytes each one got. Files cut meanwhile are read again."""
    connection = link.get()
    try:
        results = connection.data.read(requests, buffer.data, connection.config.io_deadline_s)
    except ValueError as error:
        raise InvalidArgument(f"{handles[0].path}: {error}") from error
    for _ in range(_CUTS_MAX):
        failed = np.flatnonzero(results["code"])
        if not len(failed):
            return list(results["length"].tolist())
        for i in failed.tolist():
            handles[i].check(results[i], f"read of {requests[i]['length']} bytes")
        again = connection.data.read(requests[failed], buffer.data, connection.config.io_deadline_s)
        results[failed] = again
    raise StaleHandle(f"{handles[0].path}: files are being cut while they are read")


def _requests(offsets: Integers, lengths: Integers) -> tuple[IoArray, int]:
    """Requests whose samples lie one after the other in the buffer, and the buffer's size."""
    # To numpy an empty list is one of floats.
    are_whole = all(a.dtype.kind in "ui" or not a.size for a in (offsets, lengths))
    if offsets.ndim != 1 or lengths.ndim > 1 or not are_whole:
        raise InvalidArgument("offsets and lengths are one-dimensional arrays of whole numbers")
    if len(offsets) and (offsets.min() < 0 or lengths.min() < 0):
        raise InvalidArgument("offsets and lengths are not negative")
    if lengths.ndim and len(lengths) != len(offsets):
        raise InvalidArgument(f"{len(offsets)} offsets and {len(lengths)} lengths: give one each")
    requests = np.zeros(len(offsets), IO_REQUEST)
    requests["file_offset"] = offsets
    requests["length"] = lengths
    ends = np.cumsum(requests["length"])
    requests["buffer_offset"][1:] = ends[:-1]
    return requests, int(ends[-1]) if len(ends) else 0


def _destination(into: object | None, total: int) -> Bytes:
    """The caller's memory as bytes, or fresh memory."""
    if into is None:
        return np.empty(total, np.uint8)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(into, torch.Tensor):
        into = into.detach().view(torch.uint8).numpy()
    view = memoryview(into)  # type: ignore[arg-type]
    if view.readonly or not view.c_contiguous:
        raise InvalidArgument("`into` is not writable, contiguous memory")
    if view.nbytes < total:
        raise InvalidArgument(f"`into` has {view.nbytes} bytes; the samples have {total}")
    return np.frombuffer(view.cast("B"), np.uint8)
