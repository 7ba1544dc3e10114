"""Which nodes are alive: by heartbeats, by evidence, and with restraint.

Two ways lead to a declaration of death, and they differ in what they prove:

* Silence. A node that says nothing for `dead_after_s` is DEAD: excluded, but its process may still
  run. Restraint guards against our own deafness: nobody is declared dead by silence shortly after
  start or after our own loop lagged, and when more than half of the nodes fall silent at once the
  wait is longer.
* Proof. A refused or reset connection, or a short silence, makes the manager ask the node's
  liveness port, which is opened before serving and closed only by process exit. When it refuses the
  manager and a second node within a short window, or when another incarnation answers, that
  incarnation is GONE: it serves nobody any more and never returns. Proof needs no restraint, since
  it does not depend on how well we hear.

Nothing here knows chains. `Membership` is told events and the time; probes to make are returned.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from fs3.config.manager import MembershipConfig
from fs3.ids import Incarnation, NodeId
from fs3.wire.liveness import Outcome

_NEVER = float("-inf")


class Standing(enum.Enum):
    UNKNOWN = "unknown"
    """Known from before this manager started; not heard yet."""
    ALIVE = "alive"
    DEAD = "dead"
    GONE = "gone"


class Verdict(enum.Enum):
    """The answer to a sign of life."""

    WELCOME = "welcome"
    UNREGISTERED = "unregistered"
    """This incarnation is not the registered one: it should register."""
    EXCLUDED = "excluded"
    """This incarnation was proven gone: it should start over with a new one."""


@dataclass(slots=True)
class _Watched:
    incarnation: Incarnation
    standing: Standing
    heard_at: float
    probing: bool = False
    probed_at: float = _NEVER
    refused_manager_at: float = _NEVER
    refused_peer_at: float = _NEVER

    @property
    def is_gone(self) -> bool:
        return self.standing is Standing.GONE


class Membership:
    """The standing of every node.

    Args:
        config: periods and limits.
        now: seconds of a clock that never goes back, as in every later call.
    """

    def __init__(self, config: MembershipConfig, now: float) -> None:
        self._config = config
        self._nodes: dict[NodeId, _Watched] = {}
        self._restrained_until = now + config.restraint_s
        self._ticked_at = now

    def recall(self, node: NodeId, incarnation: Incarnation, *, is_dead: bool, now: float) -> None:
        """A node that the previous manager knew; its silence counts from now."""
        standing = Standing.DEAD if is_dead else Standing.UNKNOWN
        self._nodes[node] = _Watched(incarnation, standing, now)

    def registered(self, node: NodeId, incarnation: Incarnation, now: float) -> Verdict:
        """A node announced itself. A new incarnation holds the lock of its directory, so the one
        before it is gone."""
        known = self._nodes.get(node)
        if known is not None and known.incarnation == incarnation:
            return self.heard(node, incarnation, now)
        self._nodes[node] = _Watched(incarnation, Standing.ALIVE, now)
        return Verdict.WELCOME

    def heard(self, node: NodeId, incarnation: Incarnation, now: float) -> Verdict:
        """A sign of life."""
        known = self._nodes.get(node)
        if known is None or known.incarnation != incarnation:
            return Verdict.UNREGISTERED
        if known.is_gone:
            return Verdict.EXCLUDED
        known.heard_at = now
        known.standing = Standing.ALIVE
        return Verdict.WELCOME

    def accused(self, node: NodeId, incarnation: Incarnation, now: float) -> bool:
        """Somebody met a refused or reset connection. True: the manager should probe the node."""
        known = self._nodes.get(node)
        if known is None or known.incarnation != incarnation or known.probing:
            return False
        if known.is_gone:
            return False
        known.probing, known.probed_at = True, now
        return True

    def probed(
        self, node: NodeId, incarnation: Incarnation, outcome: Outcome, answered: int, now: float
    ) -> bool:
        """The manager's own probe of `incarnation` ended. True: ask another node to probe too."""
        known = self._nodes.get(node)
        if known is None or known.incarnation != incarnation:
            return False
        known.probing = False
        if self._is_replaced(known, outcome, answered):
            known.standing = Standing.GONE
        if outcome is not Outcome.REFUSED or known.is_gone:
            return False
        known.refused_manager_at = now
        self._conclude(known)
        return not known.is_gone and self._config.proof_by_refusal

    def peer_probed(
        self, node: NodeId, incarnation: Incarnation, outcome: Outcome, answered: int, now: float
    ) -> bool:
        """Another node's probe ended. True: the manager should probe the node itself."""
        known = self._nodes.get(node)
        if known is None or known.incarnation != incarnation or known.is_gone:
            return False
        if self._is_replaced(known, outcome, answered):
            known.standing = Standing.GONE
            return False
        if outcome is not Outcome.REFUSED:
            return False
        known.refused_peer_at = now
        self._conclude(known)
        return not known.is_gone and self.accused(node, incarnation, now)

    def tick(self, now: float, expected_period_s: float) -> list[NodeId]:
        """Looks at silence; to be called every `expected_period_s`. Nodes to probe are returned."""
        if now - self._ticked_at > expected_period_s + self._config.lag_max_s:
            self._restrained_until = now + self._config.restraint_s
        self._ticked_at = now
        if now >= self._restrained_until:
            patience_s = self._patience(now)
            for known in self._nodes.values():
                if self._may_die(known) and now - known.heard_at > patience_s:
                    known.standing = Standing.DEAD
        return [n for n, k in self._nodes.items() if self._is_suspect(k, now)]

    def standing(self, node: NodeId) -> Standing:
        """DEAD for a node that never registered."""
        known = self._nodes.get(node)
        return Standing.DEAD if known is None else known.standing

    def silence(self, node: NodeId, now: float) -> float:
        """Seconds since the last sign of life; infinite for a node that never registered."""
        known = self._nodes.get(node)
        return float("inf") if known is None else now - known.heard_at

    def is_restrained(self, now: float) -> bool:
        return now < self._restrained_until

    def is_mass_silence(self, now: float) -> bool:
        """More than half of the nodes that count as alive are silent."""
        return self._patience(now) > self._config.dead_after_s

    def alive(self) -> Iterator[NodeId]:
        return (n for n, known in self._nodes.items() if known.standing is Standing.ALIVE)

    def check_invariants(self) -> None:
        for node, known in self._nodes.items():
            assert known.incarnation != 0, f"node {node} is watched without an incarnation"

    def _patience(self, now: float) -> float:
        counted = [known for known in self._nodes.values() if self._may_die(known)]
        silent = [k for k in counted if now - k.heard_at > self._config.dead_after_s]
        is_mass = 2 * len(silent) > len(counted) and len(counted) > 1
        return self._config.mass_silence_s if is_mass else self._config.dead_after_s

    def _is_suspect(self, known: _Watched, now: float) -> bool:
        quiet_s = min(now - known.heard_at, now - known.probed_at)
        return self._may_die(known) and quiet_s > self._config.suspect_after_s

    def _conclude(self, known: _Watched) -> None:
        apart_s = abs(known.refused_manager_at - known.refused_peer_at)
        if self._config.proof_by_refusal and apart_s <= self._config.evidence_window_s:
            known.standing = Standing.GONE

    @staticmethod
    def _is_replaced(known: _Watched, outcome: Outcome, answered: int) -> bool:
        return outcome is Outcome.ANSWERED and answered != known.incarnation

    @staticmethod
    def _may_die(known: _Watched) -> bool:
        return known.standing in (Standing.UNKNOWN, Standing.ALIVE)
