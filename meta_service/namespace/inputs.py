"""Everything from outside that an operation may depend on; one value per batch.

Operations read no clock, dice, routing or configuration of their own, so that a test or a
simulation replays them exactly.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from fs3.core.dice import Dice
from fs3.errors import InvalidArgument, Unavailable
from fs3.ids import InodeId
from fs3.model.inode import Layout
from fs3.model.placement import HASH_VERSION
from fs3.model.routing import ChainTable, Routing
from fs3.units import KIB, MIB

CHUNK_SIZE_MIN = 64 * KIB
CHUNK_SIZE_MAX = 64 * MIB
STRIPE_MAX = 4096


class Space(NamedTuple):
    """What the cluster can store, replicas already divided out."""

    capacity_bytes: int
    free_bytes: int


class Inputs:
    """Attributes:
    now_ns: wall clock of the server at the beginning of the batch.
    dice: seeds of layouts, session numbers.
    next_inode: an inode number that was never used; Busy when the reserve is used up.
    space: of the cluster, as last heard from its nodes.
    garbage_delay_ns: how long the chunks of a removed file stay, for readers that have it open.
    entries_checked_max: how many entries one recursive removal may have to look at.
    """

    __slots__ = (
        "_newest",
        "_routing",
        "dice",
        "entries_checked_max",
        "garbage_delay_ns",
        "next_inode",
        "now_ns",
        "space",
    )

    def __init__(
        self,
        *,
        now_ns: int,
        dice: Dice,
        next_inode: Callable[[], InodeId],
        routing: Routing,
        space: Callable[[], Space],
        garbage_delay_ns: int,
        entries_checked_max: int,
    ) -> None:
        self.now_ns = now_ns
        self.dice = dice
        self.next_inode = next_inode
        self.space = space
        self.garbage_delay_ns = garbage_delay_ns
        self.entries_checked_max = entries_checked_max
        self._routing = routing
        self._newest: ChainTable | None = None

    def layout_of_new_file(self, template: Layout) -> Layout:
        """`template` with a seed of its own and an existing table.

        Raises:
            InvalidArgument: the template is not valid, or names a table that does not exist.
            Unavailable: the cluster has no chain table yet.
        """
        check_layout(template.chunk_size, template.stripe)
        table = self._table(template)
        return Layout(
            table=table.id,
            table_version=table.version,
            chunk_size=template.chunk_size,
            stripe=template.stripe,
            seed=self.dice.getrandbits(64),
            hash_version=HASH_VERSION,
        )

    def _table(self, template: Layout) -> ChainTable:
        if template.table == 0:
            return self._newest_table()
        versions = [t for t in self._routing.tables if t.id == template.table]
        if template.table_version:
            versions = [t for t in versions if t.version == template.table_version]
        if not versions:
            raise InvalidArgument(
                f"chain table {template.table} version {template.table_version} does not exist"
            )
        return max(versions, key=lambda t: t.version)

    def _newest_table(self) -> ChainTable:
        if self._newest is None:
            self._newest = self._routing.newest_table()
            if self._newest is None:
                raise Unavailable("no chain table yet: the cluster waits for its storage nodes")
        return self._newest


def check_layout(chunk_size: int, stripe: int) -> None:
    """Raises InvalidArgument unless files can be laid out like this."""
    if not CHUNK_SIZE_MIN <= chunk_size <= CHUNK_SIZE_MAX or chunk_size & chunk_size - 1:
        raise InvalidArgument(
            f"a chunk size of {chunk_size} bytes: give a power of two from 64 KiB to 64 MiB"
        )
    if not 1 <= stripe <= STRIPE_MAX:
        raise InvalidArgument(f"a stripe of {stripe}: give 1 to {STRIPE_MAX} chains")


def directory_layout(chunk_size: int, stripe: int) -> Layout:
    """A default for future children: the newest table at the time of each creation."""
    check_layout(chunk_size, stripe)
    return Layout(table=0, table_version=0, chunk_size=chunk_size, stripe=stripe)


def with_changes(layout: Layout, chunk_size: int | None, stripe: int | None) -> Layout:
    """`layout` with what is not None replaced."""
    changed = msgspec.structs.replace(
        layout,
        chunk_size=layout.chunk_size if chunk_size is None else chunk_size,
        stripe=layout.stripe if stripe is None else stripe,
    )
    check_layout(changed.chunk_size, changed.stripe)
    return changed
