"""File systems that one contract suite runs on."""

from tests.filesystems import fake_fs, namespace_fs

__all__ = ["fake_fs", "namespace_fs"]
