"""Paths as users write them. All are absolute: a relative one is taken from the root.

`/a/b`, `a/b`, `fs3:/a/b`, `fs3:///a/b` and `fs3://a/b` are the same file. An authority is a cluster
only when it has a numeric port: `fs3://host:7000/a/b`.
"""

import os
import re
from typing import Final

from fs3.errors import InvalidArgument

StrPath = str | os.PathLike[str]

_CLUSTER: Final = re.compile(r"fs3://(?:\[[^\]/]+\]|[^/:\[\]@]+):\d{1,5}(?=/|$)")


def split_url(text: str) -> tuple[str | None, str]:
    """(`fs3://host:port` or None, path from the root with one leading slash)."""
    match = _CLUSTER.match(text)
    if match:
        return match.group(0), "/" + text[match.end() :].strip("/")
    return None, "/" + text.removeprefix("fs3:").strip("/")


def relative(path: StrPath) -> str:
    """The path as the metadata service wants it, from the root and without leading slash.

    A trailing slash is kept: it asserts a directory, as in POSIX.

    Raises:
        InvalidArgument: a null byte, or the URL of a cluster.
    """
    text = os.fspath(path)
    if text.startswith("fs3:"):
        cluster, text = split_url(text)
        if cluster is not None:
            raise InvalidArgument(
                f"{os.fspath(path)}: names a cluster; connect to it with fs3.connect({cluster!r}) "
                "and pass the path alone"
            )
    if "\0" in text:
        raise InvalidArgument(f"{text!r}: a path has no null byte")
    return text.lstrip("/")
