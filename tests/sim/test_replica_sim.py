"""The shipped replication machine under faults: every seed is one history, checked from outside."""

import pytest

from tests.sim.replica_world import World

SEEDS = 100


def play(seed: int) -> World:
    world = World(seed)
    world.run(3.0)
    world.quiesce()
    world.check_quiet()
    world.check_reads_and_writes()
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_acknowledged_update_is_lost(seed: int) -> None:
    play(seed)


def test_the_faults_happen() -> None:
    """A simulation that never meets trouble proves nothing."""
    worlds = [play(seed) for seed in range(10)]
    assert sum(w.version for w in worlds) > 50, "chains change"
    assert sum(n.incarnation - 1 for w in worlds for n in w.nodes) > 10, "nodes die"
    assert sum(o.attempts > 1 for w in worlds for o in w.operations) > 50, "clients retry"


def test_a_seed_is_one_history() -> None:
    first, second = (
        [(o.kind, o.code, o.version, o.ended) for o in play(7).operations] for _ in range(2)
    )
    assert first == second
