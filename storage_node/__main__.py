"""`python -m storage_node CONFIGURATION`: one storage node."""

import sys
from pathlib import Path

from fs3._native import NativeError, StorageServer
from fs3.config import toml
from fs3.config.storage import StorageConfig
from fs3.errors import from_number
from fs3.runtime import service
from storage_node import control
from storage_node.service import StorageNode


def run(configuration: Path, stop: service.Stop) -> None:
    config = toml.load(configuration, StorageConfig)
    node = StorageNode(
        config,
        StorageServer,
        stopping=stop.requested,
        on_start_over=stop.start_over,
        on_fatal=stop.fail,
    )
    control_server, node.control_port = control.serve(node, config.host, config.control_port)
    try:
        node.start()
    except NativeError as error:
        raise from_number(error.code, error.message) from error
    try:
        stop.wait()
    finally:
        control_server.stop(None)
        node.stop()


if __name__ == "__main__":
    sys.exit(service.main("storage_node", run))
