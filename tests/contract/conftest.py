"""File systems that the suites of this folder run on."""

from tests.filesystems import (
    cluster_fs,
    fake_fs,
    local_cluster,
    namespace_fs,
    native_fs,
    native_storage,
)

__all__ = [
    "cluster_fs",
    "fake_fs",
    "local_cluster",
    "namespace_fs",
    "native_fs",
    "native_storage",
]
