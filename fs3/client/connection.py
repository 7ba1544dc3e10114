"""What the faces stand on in one process: metadata, chunk IO and routing of one cluster.

A `Link` opens its `Connection` when it is first needed, and anew in each forked child and after
unpickling: connections are cheap, and inherited threads and sockets are not usable. It closes it,
and before that the files that somebody left open for writing, when it is closed or collected and
when the interpreter ends, but never in a forked child.
"""

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from fs3.client import fork
from fs3.client.metadata import MetadataClient
from fs3.client.ports import DataPort
from fs3.config.client import ClientConfig
from fs3.errors import InvalidArgument, Unavailable
from fs3.ids import ChainId
from fs3.model.inode import Layout
from fs3.model.placement import stripe_chains
from fs3.model.routing import Routing

if TYPE_CHECKING:
    from fs3.client.handle import Handle


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

        Waits for a table that is newer than the routing here: it is on its way.

        Raises:
            Unavailable: it did not arrive.
        """
        deadline = time.monotonic() + self.config.connect_deadline_s
        while (table := self.routing().table(layout.table, layout.table_version)) is None:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"chain table {layout.table} version {layout.table_version} is not in the "
                    "routing; see `fs3 health`"
                )
            time.sleep(self.config.retry_pause_min_s)
        return stripe_chains(table.chains, layout.stripe, layout.seed)

    def close(self) -> None:
        self.writers.shutdown()
        self.metadata.close()
        self.data.close()
        self.release()


class Writer(Protocol):
    """A file open for writing."""

    def close_late(self) -> None:
        """Closes a file that nobody closed, with a warning."""


class Link:
    """Gives the current process its connection. Thread-safe.

    Args:
        open_connection: connects; called again in a forked child.

    Attributes:
        writers: files open for writing.
        handles: their handles, which tell each other of cuts.
    """

    def __init__(self, open_connection: Callable[[], Connection]) -> None:
        self.open_connection = open_connection
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        self._finalizer: weakref.finalize[..., Link] | None = None
        self.writers: weakref.WeakSet[Writer] = weakref.WeakSet()
        self.handles: weakref.WeakSet[Handle] = weakref.WeakSet()
        fork.register(self)

    def get(self) -> Connection:
        """Raises:
        Unavailable: the cluster cannot be reached.
        InvalidArgument: the file system was closed.
        """
        connection = self._connection
        return connection if connection is not None else self._open()

    def is_current(self, connection: Connection) -> bool:
        """Whether it is this process's connection, still open."""
        return connection is self._connection

    def close(self) -> None:
        finalizer, self._finalizer = self._finalizer, None
        if finalizer is not None:
            finalizer()
        with self._lock:
            self._closed = True
            self._connection = None

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self.writers = weakref.WeakSet()
        self.handles = weakref.WeakSet()
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if self._connection is not None:
            fork.abandoned.append(self._connection)
            self._connection = None

    def _open(self) -> Connection:
        with self._lock:
            if self._closed:
                raise InvalidArgument("this file system was closed; call fs3.connect() again")
            if self._connection is None:
                connection = self.open_connection()
                self._finalizer = weakref.finalize(self, _shut_down, connection, self.writers)
                self._connection = connection
            return self._connection


def _shut_down(connection: Connection, writers: "weakref.WeakSet[Writer]") -> None:
    for writer in list(writers):
        writer.close_late()
    connection.close()
