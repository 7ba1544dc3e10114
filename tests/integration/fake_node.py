"""`python -m tests.integration.fake_node CONFIGURATION`: a storage node process without data.

The whole Python shell with the fake server in place of the native one.
"""

import sys
from pathlib import Path

from fs3.config import toml
from fs3.config.storage import StorageConfig
from fs3.runtime import service
from storage_node.engine.fake import FakeServer
from storage_node.service import StorageNode


def run(configuration: Path, stop: service.Stop) -> None:
    config = toml.load(configuration, StorageConfig)
    node = StorageNode(
        config,
        FakeServer,
        stopping=stop.requested,
        on_start_over=stop.start_over,
        on_fatal=stop.fail,
    )
    node.start()
    try:
        stop.wait()
    finally:
        node.stop()


if __name__ == "__main__":
    sys.exit(service.main("tests.integration.fake_node", run))
