"""The states of a target in its chain: the whole transition table, as data.

One row per state, one column per observation; `meta_service.core.chains` makes the observations and
applies the table. Properties that hold for the table as such are asserted where it is tested:
every pair has a next state, only SYNCED and COMPLETE lead to SERVING, and from every state a way
leads back to SERVING.
"""

import enum
from typing import Final

from fs3.model.routing import TargetState

SERVING, SYNCING, WAITING, LAST, OFFLINE = TargetState


class Observation(enum.Enum):
    """What the manager sees of a member, together with whether another member serves."""

    UNSURE = "unsure"
    """It, or a member that may be serving, has not been heard since this manager started."""
    DOWN_SERVED = "down, another serves"
    DOWN_ALONE = "down, no other serves"
    RESTARTED_SERVED = "a new incarnation, another serves"
    RESTARTED_ALONE = "a new incarnation, no other serves"
    RECREATED = "up, but as an empty target of a new generation"
    UP_SERVED = "up, another serves"
    UP_ALONE = "up, no other serves"
    TURN = "up, another serves, and it is the next one to be copied"
    SYNCED = "up, and its predecessor has copied everything"
    COMPLETE = "up, no other serves, and it holds every acknowledged write"


TRANSITIONS: Final[dict[TargetState, dict[Observation, TargetState]]] = {
    SERVING: {
        Observation.UNSURE: SERVING,
        Observation.DOWN_SERVED: OFFLINE,
        # The last one to serve is remembered as such: it may return first.
        Observation.DOWN_ALONE: LAST,
        # A new incarnation never goes on serving: what was under way in the old one is lost.
        Observation.RESTARTED_SERVED: WAITING,
        Observation.RESTARTED_ALONE: LAST,
        Observation.RECREATED: WAITING,
        Observation.UP_SERVED: SERVING,
        Observation.UP_ALONE: SERVING,
        Observation.TURN: SERVING,
        Observation.SYNCED: SERVING,
        Observation.COMPLETE: SERVING,
    },
    SYNCING: {
        Observation.UNSURE: SYNCING,
        Observation.DOWN_SERVED: OFFLINE,
        Observation.DOWN_ALONE: OFFLINE,
        Observation.RESTARTED_SERVED: WAITING,
        Observation.RESTARTED_ALONE: WAITING,
        Observation.RECREATED: WAITING,
        Observation.UP_SERVED: SYNCING,
        # Its source is gone; what it has is a part.
        Observation.UP_ALONE: WAITING,
        Observation.TURN: SYNCING,
        Observation.SYNCED: SERVING,
        Observation.COMPLETE: WAITING,
    },
    WAITING: {
        Observation.UNSURE: WAITING,
        Observation.DOWN_SERVED: OFFLINE,
        Observation.DOWN_ALONE: OFFLINE,
        Observation.RESTARTED_SERVED: WAITING,
        Observation.RESTARTED_ALONE: WAITING,
        Observation.RECREATED: WAITING,
        Observation.UP_SERVED: WAITING,
        Observation.UP_ALONE: WAITING,
        Observation.TURN: SYNCING,
        Observation.SYNCED: WAITING,
        Observation.COMPLETE: WAITING,
    },
    LAST: {
        Observation.UNSURE: LAST,
        # Another member of the last serving set returned and may have taken writes since.
        Observation.DOWN_SERVED: OFFLINE,
        Observation.DOWN_ALONE: LAST,
        Observation.RESTARTED_SERVED: WAITING,
        Observation.RESTARTED_ALONE: LAST,
        Observation.RECREATED: WAITING,
        Observation.UP_SERVED: WAITING,
        Observation.UP_ALONE: LAST,
        Observation.TURN: WAITING,
        Observation.SYNCED: LAST,
        Observation.COMPLETE: SERVING,
    },
    OFFLINE: {
        Observation.UNSURE: OFFLINE,
        Observation.DOWN_SERVED: OFFLINE,
        Observation.DOWN_ALONE: OFFLINE,
        Observation.RESTARTED_SERVED: WAITING,
        Observation.RESTARTED_ALONE: WAITING,
        Observation.RECREATED: WAITING,
        Observation.UP_SERVED: WAITING,
        Observation.UP_ALONE: WAITING,
        Observation.TURN: WAITING,
        Observation.SYNCED: WAITING,
        Observation.COMPLETE: WAITING,
    },
}

ORDER: Final = (SERVING, SYNCING, LAST, WAITING, OFFLINE)
"""Place in the chain: the SERVING ones head to tail, then the one that is being copied."""
