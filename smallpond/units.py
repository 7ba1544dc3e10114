"""Sizes as people write them."""

from __future__ import annotations

import re

from smallpond.errors import PlanError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", re.I)


def parse_bytes(value: int | float | str) -> int:
    """A number of bytes, or a text like "2GB" (powers of 1024).

    Raises:
        PlanError: it is neither.
    """
    if isinstance(value, int | float):
        return int(value)
    match = _SIZE.fullmatch(value)
    if match is None:
        raise PlanError(f"{value!r} is no size; write a number of bytes or a text like '2GB'")
    return int(float(match.group(1)) * _UNITS[match.group(2).upper()])
