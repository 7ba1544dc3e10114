"""Types of the native extension; one section per file of fs3/native/bind."""

from collections.abc import Iterable

from typing_extensions import Buffer

# checksum.cpp
def crc32c(data: Buffer, previous: int = 0) -> int: ...
def crc32c_combine(crc_a: int, crc_b: int, length_b: int) -> int: ...

# error.cpp
class NativeError(Exception):
    """A failed native call; fs3.errors maps `code` to the typed error."""

    def __init__(self, code: int, message: str) -> None: ...
    @property
    def code(self) -> int: ...
    @property
    def message(self) -> str: ...

# rocksdb.cpp
class RocksDb:
    """An ordered key-value store; a written batch is atomic and survives kill -9."""

    @staticmethod
    def open(
        path: str,
        *,
        create: bool = True,
        write_buffer_bytes: int = ...,
        block_cache_bytes: int = ...,
        wal_bytes_max: int = ...,
    ) -> RocksDb: ...
    def get(self, key: bytes) -> bytes | None: ...
    def multi_get(self, keys: list[bytes]) -> list[bytes | None]: ...
    def scan(
        self, begin: bytes, end: bytes | None, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]: ...
    def write(
        self,
        batch: Iterable[tuple[bytes, bytes | None]],
        delete_ranges: Iterable[tuple[bytes, bytes]] = (),
        sync: bool = False,
    ) -> None: ...
    def sync_wal(self) -> None: ...
    def close(self) -> None: ...
