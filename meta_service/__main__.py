"""`python -m meta_service CONFIGURATION`: cluster manager and metadata service in one process."""

import sys
from pathlib import Path

from fs3.config import toml
from fs3.config.manager import ManagerConfig
from fs3.ids import new_incarnation
from fs3.runtime import service
from meta_service.kv.rocksdb import RocksDbEngine
from meta_service.manager import METADATA_NODE, Manager
from meta_service.namespace.inputs import Space
from meta_service.service import MetadataService


def run(configuration: Path, stop: service.Stop) -> None:
    config = toml.load(configuration, ManagerConfig)
    engine = RocksDbEngine(config.directory)
    incarnation = new_incarnation()
    manager = Manager(engine, config, incarnation, stop.fail)
    metadata = MetadataService(
        engine,
        manager.routing,
        config.metadata,
        cluster_id=manager.cluster_id,
        node=METADATA_NODE,
        incarnation=incarnation,
        host=config.host,
        port=config.metadata_port,
        space=lambda: usable_space(manager, config.formation.replicas),
        is_client_dead=manager.is_client_dead,
    )
    try:
        manager.start(metadata.start())
        stop.wait()
    finally:
        manager.stop()
        metadata.stop()
        engine.close()


def usable_space(manager: Manager, replicas: int) -> Space:
    """What users can store: the space of all targets, each byte kept `replicas` times."""
    statuses = manager.target_statuses()
    return Space(
        sum(status.capacity_bytes for status in statuses) // replicas,
        sum(status.free_bytes for status in statuses) // replicas,
    )


if __name__ == "__main__":
    sys.exit(service.main("meta_service", run))
