"""Types of the native extension; one section per file of fs3/native/bind."""

from typing_extensions import Buffer

# checksum.cpp
def crc32c(data: Buffer, previous: int = 0) -> int: ...
def crc32c_combine(crc_a: int, crc_b: int, length_b: int) -> int: ...
