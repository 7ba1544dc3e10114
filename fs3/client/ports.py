"""The two boundaries of the client: a channel for metadata, and chunk IO.

Production gives `fs3._native.RpcChannel` and `fs3._native.IoClient`; `fs3.client.fake` gives both
in memory. `tests/contract/test_filesystem.py` runs on either.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

IO_REQUEST: Final = np.dtype(
    [
        ("handle", "<u4"),
        ("reserved", "<u4"),
        ("file_offset", "<u8"),
        ("length", "<u8"),
        ("buffer_offset", "<u8"),
    ]
)
IO_RESULT: Final = np.dtype([("code", "<u4"), ("reserved", "<u4"), ("length", "<u8")])

IoArray = npt.NDArray[np.void]


class Channel(Protocol):
    """Request and reply with one metadata server."""

    def call_many(
        self, requests: Sequence[tuple[int, bytes]], timeout_s: float
    ) -> Sequence[tuple[int, bytes | str]]:
        """Sends (method, body) pairs together; their (status, body) in the same order.

        A body that is a `str` is a sentence about a failure of the connection, after which nothing
        may be concluded about the request, or about a server whose queue is full (BUSY).
        """

    def close(self) -> None: ...


class DataPort(Protocol):
    """Chunk IO by handle; the meaning of each method is in `fs3/_native.pyi`, class IoClient."""

    def open_file(
        self,
        inode: int,
        chunk_size: int,
        chain_ids: Sequence[int],
        length: int,
        truncate_version: int,
    ) -> int: ...
    def set_length(self, handle: int, length: int, truncate_version: int) -> None: ...
    def close_file(self, handle: int) -> None: ...
    def read(self, requests: IoArray, into: Buffer, timeout_s: float) -> IoArray: ...
    def write(self, requests: IoArray, source: Buffer, timeout_s: float) -> IoArray: ...
    def truncate(
        self, handle: int, length: int, truncate_version: int, timeout_s: float
    ) -> tuple[int, int]: ...
    def flush(self, handle: int, timeout_s: float) -> tuple[int, int]: ...
    def counters(self) -> dict[str, int]: ...
    def close(self) -> None: ...


def one_request(handle: int, offset: int, length: int) -> Any:
    """An array with one request whose buffer starts at 0."""
    return np.array([(handle, 0, offset, length, 0)], dtype=IO_REQUEST)
