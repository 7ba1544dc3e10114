"""The transition table, pair by pair, and what holds for it as a whole."""

import itertools

import pytest

from fs3.model.routing import TargetState
from meta_service.core.transitions import ORDER, TRANSITIONS, Observation

COLUMNS = list(Observation)

EXPECTED = """
         unsure  down    down    new     new     new     up      up      up      synced  complete
                 served  alone   served  alone   empty   served  alone   turn
SERVING  SERVING OFFLINE LAST    WAITING LAST    WAITING SERVING SERVING SERVING SERVING SERVING
SYNCING  SYNCING OFFLINE OFFLINE WAITING WAITING WAITING SYNCING WAITING SYNCING SERVING WAITING
WAITING  WAITING OFFLINE OFFLINE WAITING WAITING WAITING WAITING WAITING SYNCING WAITING WAITING
LAST     LAST    OFFLINE LAST    WAITING LAST    WAITING WAITING LAST    WAITING LAST    SERVING
OFFLINE  OFFLINE OFFLINE OFFLINE WAITING WAITING WAITING WAITING WAITING WAITING WAITING WAITING
"""
"""The table once more as an operator would draw it; columns in the order of `Observation`."""

ROWS = [line.split() for line in EXPECTED.strip().splitlines()[2:]]
PAIRS = [
    (TargetState[state], observation, TargetState[following])
    for state, *row in ROWS
    for observation, following in zip(COLUMNS, row, strict=True)
]


@pytest.mark.parametrize(
    ("state", "observation", "following"), PAIRS, ids=lambda value: getattr(value, "name", None)
)
def test_pair(state: TargetState, observation: Observation, following: TargetState) -> None:
    assert TRANSITIONS[state][observation] is following


def test_every_pair_has_a_next_state() -> None:
    assert {(s, o) for s, o, _ in PAIRS} == set(itertools.product(TargetState, Observation))
    assert set(ORDER) == set(TargetState)


def test_only_complete_data_serves() -> None:
    """A member that did not serve begins to only when it was copied, or was complete all along."""
    leading = {
        (state, observation)
        for state, row in TRANSITIONS.items()
        for observation, following in row.items()
        if following is TargetState.SERVING and state is not TargetState.SERVING
    }
    assert leading == {
        (TargetState.SYNCING, Observation.SYNCED),
        (TargetState.LAST, Observation.COMPLETE),
    }


def test_a_new_incarnation_never_serves() -> None:
    for row in TRANSITIONS.values():
        for observation in (
            Observation.RESTARTED_SERVED,
            Observation.RESTARTED_ALONE,
            Observation.RECREATED,
        ):
            assert row[observation] not in (TargetState.SERVING, TargetState.SYNCING)


def test_no_state_is_a_dead_end() -> None:
    """From every state some sequence of observations leads back to SERVING."""
    reached = {TargetState.SERVING}
    while True:
        more = {s for s, row in TRANSITIONS.items() if reached & set(row.values())} | reached
        if more == reached:
            break
        reached = more
    assert reached == set(TargetState)
