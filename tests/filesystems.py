"""File systems under test, for suites that run on the fake and on a real cluster."""

from collections.abc import Iterator

import pytest

from fs3.client.fake import FakeCluster
from fs3.client.filesystem import FileSystem


@pytest.fixture
def fake_fs() -> Iterator[FileSystem]:
    """An in-memory cluster of this test."""
    cluster = FakeCluster()
    with cluster.connect() as fs:
        yield fs
    assert cluster.metadata.open_sessions() == 0, "a test left a file open for writing"
