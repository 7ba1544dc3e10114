"""Who counts as dead, when, and by what evidence."""

import pytest

from fs3.config.manager import MembershipConfig
from fs3.ids import Incarnation, NodeId
from fs3.wire.liveness import Outcome
from meta_service.core.membership import Membership, Standing, Verdict

A, B, C = NodeId(1), NodeId(2), NodeId(3)
OLD, NEW = Incarnation(100), Incarnation(200)
CONFIG = MembershipConfig()
PERIOD_S = 0.1


class Clock:
    """Ticks a membership in its period; nodes in `talking` send heartbeats meanwhile."""

    def __init__(self, config: MembershipConfig = CONFIG, nodes: tuple[NodeId, ...] = (A, B, C)):
        self.now = 0.0
        self.membership = Membership(config, 0.0)
        self.talking = set(nodes)
        for node in nodes:
            self.membership.registered(node, OLD, 0.0)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now += PERIOD_S
            for node in self.talking:
                self.membership.heard(node, OLD, self.now)
            self.membership.tick(self.now, PERIOD_S)
            self.membership.check_invariants()

    def standings(self) -> list[Standing]:
        return [self.membership.standing(node) for node in (A, B, C)]


def test_silence_kills_after_two_seconds() -> None:
    clock = Clock()
    clock.advance(5)
    clock.talking.remove(A)
    clock.advance(1.9)
    assert clock.membership.standing(A) is Standing.ALIVE
    clock.advance(0.3)
    assert clock.standings() == [Standing.DEAD, Standing.ALIVE, Standing.ALIVE]


def test_a_silent_node_that_speaks_again_lives() -> None:
    clock = Clock()
    clock.advance(5)
    clock.talking.remove(A)
    clock.advance(3)
    assert clock.membership.heard(A, OLD, clock.now) is Verdict.WELCOME
    assert clock.membership.standing(A) is Standing.ALIVE


def test_nobody_dies_right_after_the_start() -> None:
    membership = Membership(CONFIG, 0.0)
    membership.recall(A, OLD, is_dead=False, now=-100.0)
    membership.recall(B, OLD, is_dead=False, now=0.0)
    for tick in range(1, 20):
        membership.tick(tick * PERIOD_S, PERIOD_S)
        membership.heard(B, OLD, tick * PERIOD_S)
    assert membership.standing(A) is Standing.UNKNOWN
    membership.tick(2.05, PERIOD_S)
    assert membership.standing(A) is Standing.DEAD


def test_nobody_dies_after_our_own_loop_lagged() -> None:
    clock = Clock()
    clock.advance(5)
    clock.talking.remove(A)
    clock.advance(1.5)
    clock.now += 1.0  # the loop stood still
    clock.membership.tick(clock.now, PERIOD_S)
    assert clock.standings() == [Standing.ALIVE] * 3
    assert clock.membership.is_restrained(clock.now)
    clock.advance(2.1)
    assert clock.membership.standing(A) is Standing.DEAD


def test_when_most_fall_silent_at_once_patience_is_longer() -> None:
    clock = Clock()
    clock.advance(5)
    clock.talking = {A}
    clock.advance(9)
    assert clock.standings() == [Standing.ALIVE] * 3
    assert clock.membership.is_mass_silence(clock.now)
    clock.advance(1.5)
    assert clock.standings() == [Standing.ALIVE, Standing.DEAD, Standing.DEAD]


def test_one_of_two_is_not_most() -> None:
    clock = Clock(nodes=(A, B))
    clock.advance(5)
    clock.talking.remove(A)
    clock.advance(2.2)
    assert clock.membership.standing(A) is Standing.DEAD


def test_refused_by_manager_and_peer_is_gone_at_once() -> None:
    membership = Clock().membership
    assert membership.accused(A, OLD, 0.0)
    assert membership.probed(A, OLD, Outcome.REFUSED, 0, 0.01)
    assert membership.standing(A) is Standing.ALIVE
    assert not membership.peer_probed(A, OLD, Outcome.REFUSED, 0, 0.02)
    assert membership.standing(A) is Standing.GONE


def test_a_peers_refusal_makes_the_manager_probe() -> None:
    membership = Clock().membership
    assert membership.peer_probed(A, OLD, Outcome.REFUSED, 0, 0.01)
    assert not membership.probed(A, OLD, Outcome.REFUSED, 0, 0.02)
    assert membership.standing(A) is Standing.GONE


@pytest.mark.parametrize("outcome", [Outcome.SILENT, Outcome.ANSWERED])
def test_a_node_that_answers_or_hangs_is_not_gone(outcome: Outcome) -> None:
    membership = Clock().membership
    assert membership.accused(A, OLD, 0.0)
    assert not membership.probed(A, OLD, outcome, OLD, 0.01)
    membership.peer_probed(A, OLD, Outcome.REFUSED, 0, 0.01)
    assert membership.standing(A) is Standing.ALIVE


def test_refusals_far_apart_prove_nothing() -> None:
    membership = Clock().membership
    membership.accused(A, OLD, 0.0)
    membership.probed(A, OLD, Outcome.REFUSED, 0, 0.0)
    membership.peer_probed(A, OLD, Outcome.REFUSED, 0, 1.5)
    assert membership.standing(A) is Standing.ALIVE


def test_refusals_prove_nothing_where_addresses_are_translated() -> None:
    membership = Clock(MembershipConfig(proof_by_refusal=False)).membership
    membership.accused(A, OLD, 0.0)
    assert not membership.probed(A, OLD, Outcome.REFUSED, 0, 0.0)
    membership.peer_probed(A, OLD, Outcome.REFUSED, 0, 0.0)
    assert membership.standing(A) is Standing.ALIVE


def test_another_incarnation_that_answers_proves_it_alone() -> None:
    membership = Clock(MembershipConfig(proof_by_refusal=False)).membership
    membership.accused(A, OLD, 0.0)
    assert not membership.probed(A, OLD, Outcome.ANSWERED, NEW, 0.0)
    assert membership.standing(A) is Standing.GONE


def test_gone_is_for_ever_but_a_new_incarnation_is_welcome() -> None:
    membership = Clock().membership
    membership.accused(A, OLD, 0.0)
    membership.probed(A, OLD, Outcome.ANSWERED, NEW, 0.0)
    assert membership.heard(A, OLD, 0.1) is Verdict.EXCLUDED
    assert membership.registered(A, OLD, 0.1) is Verdict.EXCLUDED
    assert membership.heard(A, NEW, 0.1) is Verdict.UNREGISTERED
    assert membership.registered(A, NEW, 0.2) is Verdict.WELCOME
    assert membership.heard(A, OLD, 0.3) is Verdict.UNREGISTERED
    assert membership.standing(A) is Standing.ALIVE


def test_evidence_about_an_old_incarnation_is_ignored() -> None:
    membership = Clock().membership
    membership.registered(A, NEW, 1.0)
    assert not membership.accused(A, OLD, 0.0)
    assert not membership.probed(A, OLD, Outcome.REFUSED, 0, 1.0)
    assert not membership.peer_probed(A, OLD, Outcome.REFUSED, 0, 1.0)
    assert membership.standing(A) is Standing.ALIVE


def test_one_probe_at_a_time() -> None:
    membership = Clock().membership
    assert membership.accused(A, OLD, 0.0)
    assert not membership.accused(A, OLD, 0.0)
    membership.probed(A, OLD, Outcome.ANSWERED, OLD, 0.1)
    assert membership.accused(A, OLD, 0.0)


def test_a_short_silence_is_looked_into() -> None:
    """Also that of a node which a new manager has not heard yet."""
    clock = Clock()
    clock.membership.recall(A, OLD, is_dead=False, now=0.0)
    clock.talking.remove(A)
    suspects = []
    for tick in range(1, 20):
        now = tick * PERIOD_S
        for node in clock.talking:
            clock.membership.heard(node, OLD, now)
        for node in clock.membership.tick(now, PERIOD_S):
            suspects.append((tick, node))
            assert clock.membership.accused(node, OLD, now)
            clock.membership.probed(node, OLD, Outcome.SILENT, 0, now)
    assert [node for _, node in suspects] == [A, A]
    assert all(7 * n <= tick <= 8 * n for n, (tick, _) in enumerate(suspects, 1))


def test_an_unknown_node_is_asked_to_register() -> None:
    membership = Membership(CONFIG, 0.0)
    assert membership.heard(A, OLD, 0.0) is Verdict.UNREGISTERED
    assert membership.standing(A) is Standing.DEAD
    assert not membership.accused(A, OLD, 0.0)
