"""Chunks on the storage nodes of the cluster, reached through the native IO client."""

from collections.abc import Callable, Sequence
from typing import Final

from fs3._native import IoClient
from fs3.errors import Fs3Error, TimedOut, Unavailable, from_number
from fs3.model.placement import stripe_chains
from fs3.model.routing import Chain, Routing
from meta_service.jobs.chunks import StoredFile

ChainMember = tuple[int, int, int, str, int]


class NativeChunks:
    """Args:
    io: a client of its own; nobody else may take its completions.
    routing: the newest routing.
    timeout_s: of each call, over all retries.
    """

    def __init__(self, io: IoClient, routing: Callable[[], Routing], timeout_s: float) -> None:
        self._io: Final = io
        self._routing: Final = routing
        self._timeout_s: Final = timeout_s
        self._followed: Routing | None = None

    def remove(self, files: Sequence[StoredFile]) -> list[Fs3Error | None]:
        self._follow_routing()
        outcomes: list[Fs3Error | None] = [None] * len(files)
        handles: list[int] = []
        waiting: dict[int, int] = {}
        try:
            for index, file in enumerate(files):
                try:
                    handles.append(self._open(file))
                except Fs3Error as error:
                    outcomes[index] = error
                    continue
                version = file.truncate_version
                ticket = self._io.submit_remove(handles[-1], version, self._timeout_s)
                waiting[ticket] = index
            self._collect(waiting, outcomes)
        finally:
            for handle in handles:
                self._io.close_file(handle)
        return outcomes

    def _collect(self, waiting: dict[int, int], outcomes: list[Fs3Error | None]) -> None:
        """Files whose answer does not come are tried again."""
        while waiting:
            done = self._io.completed(2 * self._timeout_s)
            if not done:
                for index in waiting.values():
                    outcomes[index] = TimedOut("removal of chunks was not answered")
                return
            for ticket, results in done:
                index = waiting.pop(ticket, -1)
                if index >= 0:
                    outcomes[index] = _error(int(results[0]["code"]), "remove")

    def cut(self, file: StoredFile) -> None:
        self._follow_routing()
        handle = self._open(file)
        try:
            code, _ = self._io.truncate(handle, file.length, file.truncate_version, self._timeout_s)
        finally:
            self._io.close_file(handle)
        if error := _error(code, "cut"):
            raise error

    def end_of_data(self, file: StoredFile) -> int:
        self._follow_routing()
        handle = self._open(file)
        try:
            code, end = self._io.query_last(handle, self._timeout_s)
        finally:
            self._io.close_file(handle)
        if error := _error(code, "query"):
            raise error
        return end

    def _follow_routing(self) -> None:
        routing = self._routing()
        if routing is not self._followed:
            self._io.set_routing([_as_native(chain) for chain in routing.chains])
            self._followed = routing

    def _open(self, file: StoredFile) -> int:
        layout = file.layout
        table = self._routing().table(layout.table, layout.table_version)
        if table is None:
            raise Unavailable(f"chain table {layout.table} is not in the routing yet")
        chains = stripe_chains(table.chains, layout.stripe, layout.seed)
        return self._io.open_file(
            file.inode, layout.chunk_size, chains, file.length, file.truncate_version
        )


def _as_native(
    chain: Chain,
) -> tuple[int, int, list[ChainMember]]:
    members: list[ChainMember] = [
        (m.target, m.generation, m.state.value, m.host, m.port) for m in chain.members
    ]
    return chain.id, chain.version, members


def _error(code: int, what: str) -> Fs3Error | None:
    return from_number(code, f"{what} of chunks failed") if code else None
