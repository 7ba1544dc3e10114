"""File systems that the suites of this folder run on."""

from tests.filesystems import fake_fs, namespace_fs

__all__ = ["fake_fs", "namespace_fs"]
