"""Which client processes live: each says so now and then, and counts as dead after silence.

A manager that has just started knows nobody, so nobody is dead before one full expiry has passed.
"""

from dataclasses import dataclass

from fs3.ids import Incarnation


@dataclass(frozen=True, slots=True)
class Client:
    host: str
    pid: int
    description: str
    heard_at: float


class Clients:
    """Args:
    expires_s: silence after which a client is dead.
    now: seconds of a clock that never goes back, as in every later call.
    """

    def __init__(self, expires_s: float, now: float) -> None:
        self._expires_s = expires_s
        self._started_at = now
        self._clients: dict[Incarnation, Client] = {}

    def extend(self, incarnation: Incarnation, client: Client) -> None:
        """The client lives at `client.heard_at`."""
        self._clients[incarnation] = client

    def forget_expired(self, now: float) -> None:
        expired = [i for i, c in self._clients.items() if now - c.heard_at > self._expires_s]
        for incarnation in expired:
            del self._clients[incarnation]

    def is_dead(self, incarnation: Incarnation, now: float) -> bool:
        """It is certain: not heard for the expiry, by a manager that has listened for as long."""
        if now - self._started_at <= self._expires_s:
            return False
        client = self._clients.get(incarnation)
        return client is None or now - client.heard_at > self._expires_s

    def __len__(self) -> int:
        return len(self._clients)
