"""What every gRPC caller and server of the control plane shares: channel options and errors.

An error travels as its kind's gRPC status, with its number and errno in the trailing metadata, so
the caller raises the same kind. What fails below that becomes `Unavailable`.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc

from fs3.config.cluster import Endpoint
from fs3.errors import Fs3Error, TimedOut, Unavailable, from_number

NUMBER_KEY: Final = "fs3-error"
ERRNO_KEY: Final = "fs3-errno"
MESSAGE_BYTES_MAX: Final = 64 << 20

Options = Sequence[tuple[str, int]]

_SHARED: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)
CHANNEL_OPTIONS: Final[Options] = (
    *_SHARED,
    # A proxy in the environment is for the web, never for a cluster.
    ("grpc.enable_http_proxy", 0),
    # A restarted manager is found again within half a second.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A cut network ends a silent stream instead of leaving it open for ever.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # Watchers of different clusters in one process do not share connections.
    ("grpc.use_local_subchannel_pool", 1),
)
SERVER_OPTIONS: Final[Options] = (
    *_SHARED,
    # A second server on the port is an error, not a silent half of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


def open_channel(endpoint: Endpoint) -> grpc.Channel:
    return grpc.insecure_channel(str(endpoint), options=CHANNEL_OPTIONS)


def error_of(failure: grpc.RpcError, endpoint: Endpoint) -> Fs3Error:
    """The typed error that the server raised, or what kept it from answering."""
    call: Any = failure  # what a stub raises is the call itself
    trailing = dict(call.trailing_metadata() or ())
    details = call.details() or ""
    if NUMBER_KEY in trailing:
        return from_number(
            int(trailing[NUMBER_KEY]), details, errno=int(trailing.get(ERRNO_KEY, 0)) or None
        )
    if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(f"the cluster manager at {endpoint} did not answer in time")
    return Unavailable(
        f"no cluster manager answers at fs3://{endpoint} ({_reason(details)}); check the URL, or "
        "start the cluster with `fs3 up`"
    )


def status_of(error: Fs3Error) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """(status, details, trailing metadata) that carry `error` to the caller."""
    trailing = ((NUMBER_KEY, str(error.number)), (ERRNO_KEY, str(error.errno)))
    return grpc.StatusCode[error.grpc_status], error.message, trailing


def _reason(details: str) -> str:
    """gRPC nests its reasons; the innermost one comes last."""
    innermost = details.strip().rpartition(": ")[2].splitlines()
    return innermost[0].rstrip("]") if innermost else "no reason given"
