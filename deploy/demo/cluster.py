"""Stage "cluster": three storage nodes with two replicas on this machine, on free ports.

Verified by the cluster itself: it is up when it is healthy and writable.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local import LocalCluster

NODES: Final = 3
REPLICAS: Final = 2


@dataclass(frozen=True, slots=True)
class Started:
    url: str
    nodes: int
    replicas: int


class Cluster:
    """A cluster in `directory`.

    Args:
        owner: process that the daemons must not outlive; None for one that is kept.
    """

    def __init__(self, directory: Path, owner: int | None) -> None:
        self.directory = directory
        self._local = LocalCluster(directory, owner=owner)

    def start(self) -> Started:
        file = self._local.up(nodes=NODES, replicas=REPLICAS)
        return Started(file.url, file.nodes, file.replicas)

    @property
    def chains(self) -> int:
        return self._local.file.chains

    @property
    def logs(self) -> Path:
        return self.directory / "log"

    def kill(self, node: str) -> None:
        """SIGKILL."""
        self._local.kill(node)

    def stop(self) -> None:
        """Stops all daemons; fine when there are none."""
        if self.logs.exists():
            self._local.down()
