"""Types of the native extension; one section per file of fs3/native/bind."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

# checksum.cpp
def crc32c(data: Buffer, previous: int = 0) -> int: ...
def crc32c_combine(crc_a: int, crc_b: int, length_b: int) -> int: ...

# error.cpp
class NativeError(Exception):
    """A failed native call; fs3.errors maps `code` to the typed error."""

    def __init__(self, code: int, message: str) -> None: ...
    @property
    def code(self) -> int: ...
    @property
    def message(self) -> str: ...

# frame.cpp
def encode_frame(
    method: int, request_id: int, body: bytes, bulk: bytes = b"", status: int = 0, flags: int = 0
) -> bytes:
    """A whole fs3rpc frame, for tests and tools; the Python twin is fs3.wire.frame.encode."""

def scan_frames(stream: bytes) -> tuple[int, str]:
    """How many whole frames the receiver finds in `stream`, and why it refused the rest.

    The reason is a value of fs3.wire.frame.Malformed, or "none".
    """

def counters() -> dict[str, int]:
    """Totals of this process's network layer since it started.

    frames, bytes and calls in each direction, zero_copy_sends, connections and how they ended,
    reconnects, expired and refused requests, and one malformed_REASON for each reason.
    """

# rocksdb.cpp
class RocksDb:
    """An ordered key-value store; a written batch is atomic and survives kill -9."""

    @staticmethod
    def open(
        path: str,
        *,
        create: bool = True,
        write_buffer_bytes: int = ...,
        block_cache_bytes: int = ...,
        wal_bytes_max: int = ...,
    ) -> RocksDb: ...
    def get(self, key: bytes) -> bytes | None: ...
    def multi_get(self, keys: list[bytes]) -> list[bytes | None]: ...
    def scan(
        self, begin: bytes, end: bytes | None, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]: ...
    def write(
        self,
        batch: Iterable[tuple[bytes, bytes | None]],
        delete_ranges: Iterable[tuple[bytes, bytes]] = (),
        sync: bool = False,
    ) -> None: ...
    def sync_wal(self) -> None: ...
    def close(self) -> None: ...

# replica.cpp

_Version: TypeAlias = tuple[int, int]

class ReplicaUpdate:
    """One change of one chunk as the replication machine carries it; for the simulator."""

    def __init__(
        self,
        *,
        chunk: bytes,
        version: _Version = ...,
        kind: int,
        client: int = 0,
        channel: int = 0,
        sequence: int = 0,
        acknowledged_through: int = 0,
        offset: int = 0,
        length: int = 0,
        cut: int = ...,
        truncate_version: int = 0,
        expired_clients: Sequence[int] = ...,
        payload: object = None,
    ) -> None: ...
    @property
    def chunk(self) -> bytes: ...
    @property
    def version(self) -> _Version: ...
    @property
    def kind(self) -> int: ...
    @property
    def client(self) -> int: ...
    @property
    def channel(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def acknowledged_through(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def cut(self) -> int: ...
    @property
    def truncate_version(self) -> int: ...
    @property
    def expired_clients(self) -> list[int]: ...
    @property
    def payload(self) -> Any: ...

_Effects: TypeAlias = list[tuple[Any, ...]]
_Record: TypeAlias = tuple[int, int, int, _Version, int]
_State: TypeAlias = tuple[_Version, int, bool, int, Sequence[_Record]]

class Replica:
    """The replication machine (native/replica/replica.h): events in, effects out.

    An effect is a tuple that starts with its name, as in native/replica/effects.h. The invariants
    are checked after each event; a violation aborts the process.
    """

    def __init__(
        self,
        target_id: int,
        *,
        updates_max: int = ...,
        copies_max: int = ...,
        recovered: Sequence[tuple[bytes, _Version]] = ...,
    ) -> None: ...
    def on_chain(self, version: int, members: Sequence[tuple[int, bool]]) -> _Effects: ...
    def on_client_update(
        self, token: int, chain_version: int, update: ReplicaUpdate
    ) -> _Effects: ...
    def on_read(self, token: int, chain_version: int, chunk: bytes) -> _Effects: ...
    def on_forward(
        self, token: int, chain_version: int, update: ReplicaUpdate, upstream_persisted: bool
    ) -> _Effects: ...
    def on_upstream_persisted(
        self, chain_version: int, chunk: bytes, version: _Version
    ) -> _Effects: ...
    def on_sync_done(self, token: int, chain_version: int) -> _Effects: ...
    def on_acknowledge(
        self, chain_version: int, chunk: bytes, version: _Version, code: int, full: bool
    ) -> _Effects: ...
    def on_sync_done_answer(self, chain_version: int, code: int) -> _Effects: ...
    def on_tail_answer(self, token: int, code: int, committed: _Version) -> _Effects: ...
    def on_loaded(self, chunk: bytes, code: int, state: _State | None) -> _Effects: ...
    def on_listed(
        self, chain_version: int, code: int, chunks: Sequence[bytes], more: bool
    ) -> _Effects: ...
    def on_persisted(self, chunk: bytes, version: _Version, code: int, length: int) -> _Effects: ...
    def on_dropped(self, chain_version: int, code: int) -> _Effects: ...
    def on_retry(self) -> _Effects: ...
    def on_space(self, full: bool) -> _Effects: ...
    def on_client_expired(self, client: int) -> _Effects: ...
    def is_tail(self, chain_version: int) -> bool: ...
    def is_clean(self, chain_version: int, chunk: bytes) -> bool: ...
    @property
    def is_serving(self) -> bool: ...
    @property
    def is_head(self) -> bool: ...
    @property
    def successor(self) -> int | None: ...
    @property
    def tail(self) -> int: ...
    @property
    def updates(self) -> int: ...

# rpc.cpp
class RpcServer:
    """Serves operations written in Python; requests are taken and answered in batches.

        server = RpcServer("127.0.0.1", 0, cluster_id=id, node_id=1, incarnation=7, kind=3)
        for connection, request, method, body, kind, incarnation in server.poll(256, 1.0):
            replies.append((connection, request, 0, answer(method, body)))
        server.reply(replies)

    Thread-safe; must be made after fork(). HELLO and PING are answered natively, and so is a
    request that does not fit into the queue (kBusy).
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        cluster_id: bytes,
        node_id: int,
        incarnation: int,
        kind: int,
        queue_length_max: int = ...,
    ) -> None:
        """Listens from now on; `port` 0 takes a free one, `kind` is a fs3.wire.frame.PeerKind.

        Raises NativeError: kUnavailable when the port is in use, kNotFound for an unknown host.
        """
    @property
    def port(self) -> int: ...
    def poll(
        self, max_requests: int, timeout_s: float
    ) -> list[tuple[int, int, int, bytes, int, int]]:
        """(connection_id, request_id, method, body, peer_kind, peer_incarnation) of each request.

        Waits up to timeout_s for the first one, without the interpreter lock; empty after that or
        once closed.
        """
    def reply(self, replies: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Sends (connection_id, request_id, status, body); dropped if nobody waits for it."""
    def close(self) -> None:
        """Closes all connections and wakes poll; idempotent."""

class RpcChannel:
    """A client's connection to an RpcServer; connects again by itself after it broke.

    What goes wrong with a call is its outcome, never an exception: (status, body) with a number of
    fs3.errors. A `bytes` body is the service's own encoding; a `str` is a sentence about a failure
    from the connection (kUnavailable, kTimedOut: the outcome is unknown) or from the server's
    native part (kBusy).

    Thread-safe; all channels of a process share one native thread; must be made after fork().
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        cluster_id: bytes,
        incarnation: int,
        connect_timeout_s: float,
    ) -> None:
        """Connects. 16 zero bytes as cluster_id mean any cluster; `cluster_id` then names it.

        Raises NativeError: kUnavailable, kTimedOut, kVersionMismatch (another protocol or another
        cluster), kNotFound for an unknown host.
        """
    def call(self, method: int, body: bytes, timeout_s: float) -> tuple[int, bytes | str]:
        """One request; waits for its outcome without the interpreter lock."""
    def call_many(
        self, requests: Iterable[tuple[int, bytes]], timeout_s: float
    ) -> list[tuple[int, bytes | str]]:
        """Sends all (method, body) together; their outcomes in the same order."""
    def submit(self, method: int, body: bytes, timeout_s: float) -> int:
        """Starts a request and returns its id; `completed` tells its outcome."""
    def completed(self) -> list[tuple[int, int, bytes | str]]:
        """Takes the (id, status, body) of submitted requests that have an outcome."""
    def fileno(self) -> int:
        """An eventfd that is readable while completions wait; for loop.add_reader. Do not read."""
    @property
    def cluster_id(self) -> bytes: ...
    @property
    def server_node_id(self) -> int: ...
    @property
    def server_incarnation(self) -> int: ...
    def close(self) -> None:
        """Fails what is in flight with kUnavailable; idempotent."""

# server.cpp
#
# (target, generation, state, host, port) as in fs3.model.routing.Member; a chain is a list of these
# from head to tail: the SERVING ones first, then at most one SYNCING one. Members in other states
# may be listed; they neither serve nor receive.
ChainMember: TypeAlias = tuple[int, int, int, str, int]

class ServerEvent:
    """What a storage server tells its Python shell. Fields that do not apply are 0 or empty.

    kind is one of
      "target_error"     a target's store failed (target_id, code, message); it stopped serving
      "sync_progress"    this node copies to a SYNCING successor (target_id is the successor,
                         done, total in chunks); at most a few per second
      "sync_finished"    a SYNCING target of this node (target_id) holds everything of chain_id at
                         chain_version: the manager may make it SERVING
      "peer_refused"     connecting to node_id was refused
      "peer_reset"       an established connection to node_id was reset or closed by it
      "forward_stalled"  a forward on chain_id at chain_version to node_id made no progress for
                         stalled_s
    """

    @property
    def kind(self) -> str: ...
    @property
    def target_id(self) -> int: ...
    @property
    def chain_id(self) -> int: ...
    @property
    def chain_version(self) -> int: ...
    @property
    def node_id(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def stalled_s(self) -> float: ...

class TargetSpace:
    @property
    def target_id(self) -> int: ...
    @property
    def capacity_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def free_bytes(self) -> int: ...
    @property
    def chunks(self) -> int: ...

class StorageServer:
    """Native storage server of one node: one thread, event loop and port per shard.

    Listens from construction on; targets are added afterwards and serve nothing before set_chain.
    All methods are thread-safe and release the interpreter lock while they wait.
    """

    def __init__(
        self,
        *,
        cluster_id: bytes,
        node_id: int,
        incarnation: int,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (0,),
        inflight_bytes_max: int = 268_435_456,
    ) -> None:
        """One shard per entry of `ports` (0: any free port).

        Raises NativeError: kUnavailable when a port cannot be bound.
        """
    def add_target(
        self,
        target_id: int,
        generation: int,
        directory: str,
        *,
        create: bool,
        shard: int = 0,
        capacity_bytes: int = 0,
    ) -> None:
        """Opens the target kept in `directory`, or formats it when `create` and it is none yet.

        With a capacity of 0 the target may use what its file system has.

        Raises NativeError: kConflict when the directory holds another target or generation,
        kCorrupt or kInternal when it cannot be opened.
        """
    def remove_target(self, target_id: int) -> None:
        """Stops serving and closes the target; its files stay. Unknown targets are ignored."""
    def set_chain(
        self, target_id: int, chain_id: int, chain_version: int, members: Sequence[ChainMember]
    ) -> None:
        """Adopts a chain version for a local target; an older or equal one changes nothing.

        The target's role follows from its place and state in `members`; a list without it makes it
        refuse everything (kStaleRouting). The predecessor of a SYNCING member starts the full copy
        by itself. Raises NativeError: kNotFound when there is no such target, kConflict when
        `members` names it with another generation.
        """
    def expire_clients(self, incarnations: Sequence[int]) -> None:
        """These clients have ended for good: the results of their writes may be forgotten."""
    def poll_events(self, timeout_s: float) -> list[ServerEvent]:
        """Waits up to timeout_s for at least one event and takes all there are."""
    def fileno(self) -> int:
        """An eventfd that is readable while events wait; for loop.add_reader. Do not read it."""
    def space(self) -> list[TargetSpace]: ...
    def counters(self) -> dict[str, int]: ...
    def endpoints(self) -> list[tuple[str, int]]:
        """Per shard, the address it listens on."""
    def target_endpoint(self, target_id: int) -> tuple[str, int]:
        """The address that clients and peers use for this target. Raises KeyError."""
    def stop(self) -> None:
        """Stops all shards and closes all targets; idempotent."""

# client.cpp

# numpy dtypes of the request and result arrays: np.dtype(IO_REQUEST), np.dtype(IO_RESULT).
#   IO_REQUEST: handle u4, reserved u4 (0), file_offset u8, length u8, buffer_offset u8 = 32 bytes
#   IO_RESULT:  code u4, reserved u4, length u8 = 16 bytes
IO_REQUEST: Final[list[tuple[str, str]]]
IO_RESULT: Final[list[tuple[str, str]]]

class IoClient:
    """Native IO client: one loop thread, connections to shards, retries until the deadline.

    Remote failures are codes (fs3/errors.py), never exceptions. All methods are thread-safe; the
    blocking ones release the interpreter lock.
    """

    def __init__(
        self,
        *,
        cluster_id: bytes,
        incarnation: int,
        inflight_bytes_max: int = 67_108_864,
        hedge_after_s: float = 0.1,
    ) -> None: ...
    def set_routing(self, chains: Sequence[tuple[int, int, Sequence[ChainMember]]]) -> None:
        """Replaces entries of (chain_id, chain_version, members); older versions are ignored.

        Only the chains given change, so a delta can be passed as it came.
        """
    def open_file(
        self,
        inode: int,
        chunk_size: int,
        chain_ids: Sequence[int],
        length: int,
        truncate_version: int,
    ) -> int:
        """A handle for IO; chunk i lives on chain_ids[i % len(chain_ids)]. Nothing is sent.

        Raises ValueError when chunk_size is not a power of two from 64 KiB to 64 MiB or there is no
        chain.
        """
    def set_length(self, handle: int, length: int, truncate_version: int) -> None:
        """Length and truncate version as the metadata service has them now."""
    def length(self, handle: int) -> int:
        """Largest of the length set and the end of this handle's acknowledged writes."""
    def acknowledged_length(self, handle: int) -> int:
        """End of the furthest acknowledged write since open or set_length; 0 when none."""
    def close_file(self, handle: int) -> None: ...
    def read(
        self, requests: npt.NDArray[np.void], into: Buffer, timeout_s: float
    ) -> npt.NDArray[np.void]:
        """Fills `into` and returns one IO_RESULT per IO_REQUEST.

        `length` of a result is what lies before the end of the file; holes read as zeros. Raises
        ValueError when a range leaves the buffer, KeyError for an unknown handle.
        """
    def write(
        self, requests: npt.NDArray[np.void], source: Buffer, timeout_s: float
    ) -> npt.NDArray[np.void]:
        """Writes from `source`; a result with code 0 is on every serving replica.

        With another code any part of that request may or may not be stored.
        """
    def submit_read(self, requests: npt.NDArray[np.void], into: Buffer, timeout_s: float) -> int:
        """As read, but returns a ticket at once; `into` is kept alive until it completes."""
    def submit_write(
        self, requests: npt.NDArray[np.void], source: Buffer, timeout_s: float
    ) -> int: ...
    def submit_truncate(
        self, handle: int, length: int, truncate_version: int, timeout_s: float
    ) -> int: ...
    def submit_remove(self, handle: int, truncate_version: int, timeout_s: float) -> int: ...
    def submit_query_last(self, handle: int, timeout_s: float) -> int: ...
    def submit_flush(self, handle: int, timeout_s: float) -> int: ...
    def completed(self, timeout_s: float = 0.0) -> list[tuple[int, npt.NDArray[np.void]]]:
        """Waits up to timeout_s and takes all finished (ticket, IO_RESULT array) pairs.

        For the single-result forms the array has one entry whose `length` is that of the blocking
        call's second value.
        """
    def fileno(self) -> int:
        """An eventfd that is readable while completions wait; for loop.add_reader."""
    def truncate(
        self, handle: int, length: int, truncate_version: int, timeout_s: float
    ) -> tuple[int, int]:
        """Cuts the file's chunks to `length` under `truncate_version`; (code, chunks touched)."""
    def remove(self, handle: int, truncate_version: int, timeout_s: float) -> tuple[int, int]:
        """Removes all chunks of the file; (code, chunks removed)."""
    def query_last(self, handle: int, timeout_s: float) -> tuple[int, int]:
        """(code, end of the last stored byte of the file in bytes; 0 when it has no chunk)."""
    def flush(self, handle: int, timeout_s: float) -> tuple[int, int]:
        """Makes every acknowledged write of the file survive power loss on every replica."""
    def counters(self) -> dict[str, int]:
        """Among others retried_ops, hedged_reads, reads, writes, read_bytes, written_bytes."""
    def close(self) -> None:
        """Fails what is in flight with kUnavailable and joins the thread; idempotent."""

# chunk_store.cpp
class FakeMachine:
    """Disk and metadata in memory; what was not flushed may be lost or torn by lose_power."""

    def __init__(self, seed: int) -> None: ...
    def cut_power_after(self, operations: int) -> None: ...
    def lose_power(self) -> None: ...
    @property
    def operations(self) -> int: ...
    @property
    def is_on(self) -> bool: ...

class ChunkStore:
    """The chunks of one target; for tests and tools, each call waits.

    Chunks are (inode, index), versions (chain version, sequence). Failures raise NativeError.
    """

    @staticmethod
    def open(
        directory: str,
        *,
        capacity_bytes: int,
        reserve_bytes: int = 0,
        record_cache_bytes: int = ...,
        log_segment_bytes: int = 0,
        boot_id: str = "",
    ) -> ChunkStore: ...
    @staticmethod
    def open_fake(
        machine: FakeMachine,
        *,
        capacity_bytes: int,
        reserve_bytes: int = 0,
        record_cache_bytes: int = ...,
        log_segment_bytes: int = 0,
    ) -> ChunkStore: ...
    def write(
        self,
        chunk: tuple[int, int],
        version: tuple[int, int],
        offset: int,
        data: Buffer,
        *,
        chunk_size: int = 1048576,
        truncate_version: int = 0,
        once: tuple[int, int, int] | None = None,
        use_reserve: bool = False,
    ) -> tuple[tuple[int, int], int, bool]: ...
    def replace(
        self,
        chunk: tuple[int, int],
        version: tuple[int, int],
        data: Buffer,
        tombstone: bool = False,
        *,
        chunk_size: int = 1048576,
        truncate_version: int = 0,
        once: tuple[int, int, int] | None = None,
        use_reserve: bool = False,
    ) -> tuple[tuple[int, int], int, bool]: ...
    def truncate(
        self,
        chunk: tuple[int, int],
        version: tuple[int, int],
        length: int,
        *,
        chunk_size: int = 1048576,
        truncate_version: int = 0,
        once: tuple[int, int, int] | None = None,
        use_reserve: bool = False,
    ) -> tuple[tuple[int, int], int, bool]: ...
    def extend(
        self,
        chunk: tuple[int, int],
        version: tuple[int, int],
        length: int,
        *,
        chunk_size: int = 1048576,
        truncate_version: int = 0,
        once: tuple[int, int, int] | None = None,
        use_reserve: bool = False,
    ) -> tuple[tuple[int, int], int, bool]: ...
    def remove(
        self,
        chunk: tuple[int, int],
        version: tuple[int, int],
        *,
        chunk_size: int = 1048576,
        truncate_version: int = 0,
        once: tuple[int, int, int] | None = None,
        use_reserve: bool = False,
    ) -> tuple[tuple[int, int], int, bool]: ...
    def commit(self, chunk: tuple[int, int], version: tuple[int, int]) -> None: ...
    def abandon(self, chunk: tuple[int, int], version: tuple[int, int]) -> None: ...
    def forget(self, chunk: tuple[int, int], version: tuple[int, int]) -> None: ...
    def read(
        self,
        chunk: tuple[int, int],
        offset: int,
        length: int,
        version: tuple[int, int] | None = None,
    ) -> bytes: ...
    def stat(self, chunk: tuple[int, int]) -> dict[str, Any]: ...
    def list_chunks(self, begin: tuple[int, int], limit: int) -> list[dict[str, Any]]: ...
    def pending_chunks(self) -> list[tuple[int, int]]: ...
    def space(self) -> dict[str, int]: ...
    def counters(self) -> dict[str, int]: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
