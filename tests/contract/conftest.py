"""File systems that the suites of this folder run on."""

from tests.filesystems import cluster_fs, fake_fs, local_cluster, namespace_fs

__all__ = ["cluster_fs", "fake_fs", "local_cluster", "namespace_fs"]
