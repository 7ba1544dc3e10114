"""`python -m tests.integration.fake_manager CONFIGURATION`: a manager without metadata service."""

import sys
from pathlib import Path

from fs3.config import toml
from fs3.config.manager import ManagerConfig
from fs3.ids import new_incarnation
from fs3.runtime import service
from meta_service.kv.rocksdb import RocksDbEngine
from meta_service.manager import Manager


def run(configuration: Path, stop: service.Stop) -> None:
    config = toml.load(configuration, ManagerConfig)
    engine = RocksDbEngine(config.directory)
    manager = Manager(engine, config, new_incarnation(), stop.fail)
    manager.start(1)
    try:
        stop.wait()
    finally:
        manager.stop()
        engine.close()


if __name__ == "__main__":
    sys.exit(service.main("tests.integration.fake_manager", run))
