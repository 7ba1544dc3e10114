"""Units of sizes and times; names say which: `size_bytes`, `timeout_s`, `mtime_ns`."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

NANOSECONDS_PER_SECOND: Final = 1_000_000_000

_SUFFIXES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(size_bytes: int) -> str:
    """`1536` -> `'1.5 KiB'`: binary units, at most one decimal, for people to read."""
    value = float(size_bytes)
    for suffix in _SUFFIXES:
        if abs(value) < 1024 or suffix == _SUFFIXES[-1]:
            return f"{int(value)} {suffix}" if suffix == "B" else f"{value:.1f} {suffix}"
        value /= 1024
    raise AssertionError("unreachable: the last suffix always returns")


def parse_bytes(text: str) -> int:
    """`'64KiB'`, `'1 MiB'`, `'4m'` or `'512'` -> bytes.

    Raises:
        ValueError: the text is not a number followed by a binary unit.
    """
    stripped = text.strip().lower()
    number = stripped.rstrip("kmgtpib ")
    unit = stripped[len(number) :].strip().removesuffix("b").removesuffix("i")
    try:
        scale = 1024 ** ("", "k", "m", "g", "t", "p").index(unit)
        return int(float(number) * scale)
    except ValueError:
        raise ValueError(f"{text!r} is not a size: write for example 512, 64KiB or 1MiB") from None
