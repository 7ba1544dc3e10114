"""What an operator asks the cluster manager, as plain values."""

import grpc

from fs3.config.cluster import parse_url
from fs3.runtime import control
from fs3.wire.proto import admin_pb2, admin_pb2_grpc


class AdminClient:
    """Asks the manager of one cluster; use it in a `with` block.

    Args:
        url: `fs3://host:port`.
        timeout_s: of each question.

    Raises:
        InvalidArgument: `url` is not a cluster URL.
    """

    def __init__(self, url: str, timeout_s: float = 5.0) -> None:
        self._endpoint = parse_url(url)
        self._timeout_s = timeout_s
        self._channel = control.open_channel(self._endpoint)
        self._stub = admin_pb2_grpc.AdminStub(self._channel)

    def status(self) -> admin_pb2.ClusterStatus:
        """Raises Unavailable or TimedOut when no manager answers."""
        try:
            return self._stub.GetStatus(admin_pb2.GetStatusRequest(), timeout=self._timeout_s)
        except grpc.RpcError as failure:
            raise control.error_of(failure, self._endpoint) from None

    def health(self) -> admin_pb2.Health:
        """Raises Unavailable or TimedOut when no manager answers."""
        try:
            return self._stub.GetHealth(admin_pb2.GetHealthRequest(), timeout=self._timeout_s)
        except grpc.RpcError as failure:
            raise control.error_of(failure, self._endpoint) from None

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
