"""The liveness port of a node, and how the manager and other nodes ask it."""

import contextlib
import logging
import socket
import threading
from typing import Final

from fs3.config.cluster import Endpoint
from fs3.ids import Incarnation, NodeId
from fs3.wire import liveness
from fs3.wire.liveness import Outcome

log = logging.getLogger(__name__)

_BACKLOG: Final = 128
_SEND_TIMEOUT_S: Final = 0.1


class LivenessPort:
    """Answers on a port of `host` until the process exits; there is no way to close it.

    Raises:
        OSError: no port can be bound.
    """

    def __init__(self, host: str, node: NodeId, incarnation: Incarnation) -> None:
        self._answer = liveness.encode(node, incarnation)
        self._socket = socket.create_server((host, 0), backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, name="fs3-liveness", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                log.warning("liveness port: %s", error)
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_SEND_TIMEOUT_S)
                connection.sendall(self._answer)


def probe(endpoint: Endpoint, node: NodeId, timeout_s: float) -> tuple[Outcome, Incarnation]:
    """Asks a liveness port; (outcome, incarnation that answered or 0)."""
    try:
        with socket.create_connection(endpoint, timeout_s) as connection:
            connection.settimeout(timeout_s)
            answered = liveness.decode(connection.recv(liveness.SIZE, socket.MSG_WAITALL), node)
    except ConnectionRefusedError:
        return Outcome.REFUSED, Incarnation(0)
    except OSError:
        return Outcome.SILENT, Incarnation(0)
    if answered is None:
        return Outcome.SILENT, Incarnation(0)
    return Outcome.ANSWERED, answered
