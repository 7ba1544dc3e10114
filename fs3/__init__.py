"""fs3: a distributed file system for training and inference data.

    import fs3
    fs = fs3.connect()          # joins the configured cluster, or starts a local one

Everything else is reached from the object that `connect` returns. Errors are in `fs3.errors`. Names
are loaded when they are first used, so that importing fs3 and its commands start fast.
"""

import os
from typing import TYPE_CHECKING, Any

# gRPC's own fork handlers abort a child now and then, also one that never uses gRPC; fs3 keeps it
# out of forked children by itself. gRPC reads this when it is first used.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from fs3.client.aio import AsyncFile, AsyncFileSystem
    from fs3.client.connect import connect, connect_async
    from fs3.client.entry import DirEntry
    from fs3.client.file import File, TextFile
    from fs3.client.filesystem import FileSystem

__version__ = "0.1.0"

__all__ = [
    "AsyncFile",
    "AsyncFileSystem",
    "DirEntry",
    "File",
    "FileSystem",
    "TextFile",
    "__version__",
    "connect",
    "connect_async",
]

_HOME = {
    "AsyncFile": "aio",
    "AsyncFileSystem": "aio",
    "DirEntry": "entry",
    "File": "file",
    "FileSystem": "filesystem",
    "TextFile": "file",
    "connect": "connect",
    "connect_async": "connect",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fs3' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"fs3.client.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
