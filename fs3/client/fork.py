"""What a forked child must not inherit: threads do not survive a fork, nor does a held lock.

PyTorch's DataLoader forks workers that already hold open files. Everything that owns a thread, a
socket or a lock registers here and is reset in the child before any user code runs there. The
alternative, comparing process ids on each call, would cost every read and could not free a lock.
"""

import gc
import os
import weakref
from typing import Final, Protocol


class Forkable(Protocol):
    def after_fork_in_child(self) -> None:
        """Forgets threads, sockets and locks of the parent, closing none of them."""


_registered: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()
abandoned: Final[list[object]] = []
"""Objects of the parent whose destructors would wait for threads that do not exist here."""

_is_child = False


def is_child() -> bool:
    """This process was forked from one that had loaded the client."""
    return _is_child


def register(item: Forkable) -> None:
    _registered.add(item)


def _reset_in_child() -> None:
    global _is_child
    _is_child = True
    # What the parent left to the collector, gRPC's channels among it, must not be finalised here:
    # gRPC aborts when it is used in a child.
    gc.freeze()
    for item in list(_registered):
        item.after_fork_in_child()


os.register_at_fork(after_in_child=_reset_in_child)
