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

_TARGET_BITS = 16
"""A target id without these bits is its node and disk."""


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
        follow=manager.follow,
    )
    try:
        manager.start(metadata.start())
        stop.wait()
    finally:
        manager.stop()
        metadata.stop()
        engine.close()


def usable_space(manager: Manager, replicas: int) -> Space:
    """What users can store: the space of all disks, each byte kept `replicas` times.

    Targets of one disk share what is free on it, so that counts once.
    """
    free_of_disk: dict[int, int] = {}
    used = 0
    for status in manager.target_statuses():
        disk = status.id >> _TARGET_BITS
        free_of_disk[disk] = min(free_of_disk.get(disk, status.free_bytes), status.free_bytes)
        used += status.used_bytes
    free = sum(free_of_disk.values())
    return Space((used + free) // replicas, free // replicas)


if __name__ == "__main__":
    sys.exit(service.main("meta_service", run))
