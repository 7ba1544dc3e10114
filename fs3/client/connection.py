"""What the faces stand on in one process: metadata, chunk IO and routing of one cluster.

A `Link` opens its `Connection` when it is first needed, and anew in each forked child and after
unpickling: connections are cheap, and inherited threads and sockets are not usable.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fs3.client import fork
from fs3.client.metadata import MetadataClient
from fs3.client.ports import DataPort
from fs3.config.client import ClientConfig
from fs3.errors import InvalidArgument, Unavailable
from fs3.ids import ChainId
from fs3.model.inode import Layout
from fs3.model.placement import stripe_chains
from fs3.model.routing import Routing


@dataclass(frozen=True, eq=False)
class Connection:
    """Args:
    metadata: metadata operations.
    data: chunk IO.
    routing: the newest routing known.
    config: limits.
    release: frees what else was opened for this connection.
    """

    metadata: MetadataClient
    data: DataPort
    routing: Callable[[], Routing]
    config: ClientConfig
    release: Callable[[], None]
    writers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="fs3-write")
    )
    """Threads that send full write buffers while the application fills the next one."""

    def chains_of(self, layout: Layout) -> tuple[ChainId, ...]:
        """The chains of a file, in stripe order.

        Raises:
            Unavailable: the routing does not know the layout's chain table yet.
        """
        table = self.routing().table(layout.table, layout.table_version)
        if table is None:
            raise Unavailable(
                f"chain table {layout.table} version {layout.table_version} is not in the routing; "
                "see `fs3 health`"
            )
        return stripe_chains(table.chains, layout.stripe, layout.seed)

    def close(self) -> None:
        self.writers.shutdown()
        self.metadata.close()
        self.data.close()
        self.release()


class Link:
    """Gives the current process its connection. Thread-safe.

    Args:
        open_connection: connects; called again in a forked child.
    """

    def __init__(self, open_connection: Callable[[], Connection]) -> None:
        self.open_connection = open_connection
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        fork.register(self)

    def get(self) -> Connection:
        """Raises:
        Unavailable: the cluster cannot be reached.
        InvalidArgument: the file system was closed.
        """
        connection = self._connection
        return connection if connection is not None else self._open()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        if self._connection is not None:
            fork.abandoned.append(self._connection)
            self._connection = None

    def _open(self) -> Connection:
        with self._lock:
            if self._closed:
                raise InvalidArgument("this file system was closed; call fs3.connect() again")
            if self._connection is None:
                self._connection = self.open_connection()
            return self._connection
