"""What the cluster manager keeps in the metadata store, and the fence around every write to it.

A primary writes its epoch into the lease record when it starts; every later commit reads that
record in its own transaction and refuses when the epoch has moved on. So two managers over one
store never both change chains, whatever their clocks say.

The embedded engine locks its directory, so the primary before is dead when the store can be opened
and the epoch is taken at once.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from fs3.errors import Conflict
from fs3.ids import ClusterId, Incarnation
from fs3.wire import cluster_records as records
from fs3.wire import keys
from fs3.wire.cluster_records import ClusterRecord, PrimaryLease
from fs3.wire.records import Codec
from meta_service.core.cluster import CLUSTER_KEY, Stored
from meta_service.kv.transaction import Engine, Transaction

T = TypeVar("T", bound=msgspec.Struct)

_LEASE_KEY: Final = keys.lease("manager")
_PAGE: Final = 1000


class ClusterStore:
    """Args:
    engine: the metadata store.
    holder: incarnation of this process.
    """

    def __init__(self, engine: Engine, holder: Incarnation) -> None:
        self._engine = engine
        self._holder = holder
        self.epoch = 0

    def open(self, address: str, new_cluster: Callable[[], ClusterId], now_ns: int) -> Stored:
        """Takes the epoch and returns what is stored, after formatting an empty store.

        Args:
            address: where this primary answers.
            new_cluster: draws the id of a cluster that is formatted here.
            now_ns: wall clock, for the record only.

        Raises:
            Corrupt: a stored record cannot be read.
        """
        cluster_id = new_cluster()

        def body(transaction: Transaction) -> Stored:
            lease = transaction.get(_LEASE_KEY)
            self.epoch = (records.PRIMARY.decode(lease).epoch if lease else 0) + 1
            taken = PrimaryLease(self.epoch, self._holder, address)
            transaction.set(_LEASE_KEY, records.PRIMARY.encode(taken))
            stored = transaction.get(CLUSTER_KEY)
            if stored is None:
                fresh = ClusterRecord(cluster_id, records.FEATURE_LEVEL, now_ns)
                stored = records.CLUSTER.encode(fresh)
                transaction.set(CLUSTER_KEY, stored)
            return Stored(
                cluster=records.CLUSTER.decode(stored),
                nodes={n.id: n for n in _all(transaction, keys.NODE, records.NODE)},
                chains={c.id: c for c in _all(transaction, keys.CHAIN, records.CHAIN)},
                tables=_all(transaction, keys.TABLE, records.TABLE),
            )

        return self._engine.transact(body, sync=True)

    def commit(self, puts: tuple[tuple[bytes, bytes], ...]) -> None:
        """Stores all pairs or none, on media.

        Raises:
            Conflict: another manager has taken over; this one must stop.
        """

        def body(transaction: Transaction) -> None:
            lease = transaction.get(_LEASE_KEY)
            if lease is None or records.PRIMARY.decode(lease).epoch != self.epoch:
                raise Conflict(
                    f"another cluster manager has taken over epoch {self.epoch}; this one stops"
                )
            for key, value in puts:
                transaction.set(key, value)

        self._engine.transact(body, sync=True)


def _all(transaction: Transaction, prefix: bytes, codec: Codec[T]) -> list[T]:
    begin, end = keys.prefix_range(prefix)
    found: list[T] = []
    while True:
        page = transaction.scan(begin, end, limit=_PAGE)
        found += (codec.decode(value) for _, value in page)
        if len(page) < _PAGE:
            return found
        begin = page[-1][0] + b"\0"
