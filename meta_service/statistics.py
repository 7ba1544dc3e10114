"""What the metadata service counts, as plain numbers for `/metrics`."""

import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass
class OperationStatistics:
    """Attributes:
    requests: answered, errors included.
    errors: answered with an error.
    seconds: from being taken to being committed, summed over the requests.
    seconds_max: of the slowest one.
    """

    requests: int = 0
    errors: int = 0
    seconds: float = 0.0
    seconds_max: float = 0.0


class Statistics:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: dict[str, OperationStatistics] = {}
        self._batches = 0

    def record(self, answered: Iterable[tuple[str, int]], seconds: float) -> None:
        """A batch whose requests waited for `seconds`.

        Args:
            answered: name of the operation and status of each.
        """
        with self._lock:
            self._batches += 1
            for name, status in answered:
                operation = self._operations.get(name)
                if operation is None:
                    operation = self._operations[name] = OperationStatistics()
                operation.requests += 1
                operation.errors += status != 0
                operation.seconds += seconds
                operation.seconds_max = max(operation.seconds_max, seconds)

    def snapshot(self) -> dict[str, dict[str, int | float]]:
        """By operation, and `batches` with their number."""
        with self._lock:
            return {
                "batches": {"count": self._batches},
                **{name: asdict(operation) for name, operation in self._operations.items()},
            }
