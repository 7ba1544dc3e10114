"""The boundary between the driver's loop and whatever starts workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from smallpond.core.events import HostJoined, WorkerId, WorkerJoined, WorkerLost, WorkerStartFailed


@dataclasses.dataclass(frozen=True)
class FromWorker:
    """A message of a worker."""

    worker: WorkerId
    message: Any


Notice = HostJoined | WorkerJoined | WorkerLost | WorkerStartFailed | FromWorker


class Launcher(Protocol):
    """Starts, stops and talks to workers.

    `open` is called once, with the function that takes notices (from any thread). For every `start`
    there is one `WorkerJoined` or `WorkerStartFailed`, for every joined worker one `WorkerLost`
    after which nothing more of it arrives. All methods are called by one thread and return soon.
    """

    def open(self, post: Callable[[Notice], None]) -> None: ...

    def start(self, host: str) -> None: ...

    def send(self, worker: WorkerId, message: object) -> None:
        """Queue a message; it is dropped if the worker is gone."""

    def stop(self, worker: WorkerId) -> None:
        """End it now, whatever it does."""

    def close(self) -> None:
        """End all workers; returns when they are gone."""
