from collections.abc import Iterator
from pathlib import Path

import pytest

from meta_service.kv.rocksdb import RocksDbEngine
from tests.meta_world import World


@pytest.fixture(params=["memory", "rocksdb"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A fresh namespace on each engine."""
    if request.param == "memory":
        yield World()
        return
    engine = RocksDbEngine(str(tmp_path / "kv"))
    yield World(engine)
    engine.close()
