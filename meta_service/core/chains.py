"""One step of one chain: observe every member, look up the table, order, count the version up.

What makes it safe: a write is acknowledged only when every SERVING member has it, so each member of
the newest set that served together (`last_serving`) holds every acknowledged write, and nobody
outside of it is known to. While somebody serves, that set is who serves now. When nobody does, only
its members may return, in state LAST, and the first of them that is complete serves again; all the
others are copied from it.

Complete means: the host has not booted since (an acknowledged write survives a killed process in
the page cache), or else all members of the set are back, which between them hold what survived.
"""

from collections.abc import Callable
from typing import NamedTuple

from fs3.ids import ChainVersion, Incarnation, TargetId
from fs3.model.routing import TargetState
from fs3.wire.cluster_records import ChainRecord, LastServing, MemberRecord
from meta_service.core.membership import Standing
from meta_service.core.transitions import ORDER, TRANSITIONS, Observation

SERVING, SYNCING, WAITING, LAST, OFFLINE = TargetState


class Sight(NamedTuple):
    """What the manager knows of a target, wherever it is a member.

    Attributes:
        standing: of its node; DEAD also when the node no longer has the target or its store failed.
        incarnation: of its node now.
        generation: of the target now.
        boot_id: of its node's host now.
    """

    standing: Standing
    incarnation: Incarnation
    generation: int
    boot_id: str

    @property
    def is_up(self) -> bool:
        return self.standing is Standing.ALIVE

    @property
    def is_unknown(self) -> bool:
        return self.standing is Standing.UNKNOWN


View = Callable[[TargetId], Sight]


def step(chain: ChainRecord, view: View, synced: TargetId | None) -> ChainRecord | None:
    """The next version of `chain`, or None when nothing changes.

    Call it until it returns None: a member may take several steps, each a version of its own.

    Args:
        view: what is known of each target.
        synced: the SYNCING member that holds everything of exactly this chain version.
    """
    sights = [view(member.target) for member in chain.members]
    members = [
        _moved(member, sight, observation)
        for member, sight, observation in zip(
            chain.members, sights, observe(chain, view, synced), strict=True
        )
    ]
    if all(
        (old.state, old.generation) == (new.state, new.generation)
        for old, new in zip(chain.members, members, strict=True)
    ):
        return None
    ordered = tuple(sorted(members, key=lambda member: ORDER.index(member.state)))
    return ChainRecord(
        id=chain.id,
        version=ChainVersion(chain.version + 1),
        members=ordered,
        last_serving=_serving_set(ordered, view) or chain.last_serving,
        scheme=chain.scheme,
    )


def observe(chain: ChainRecord, view: View, synced: TargetId | None) -> list[Observation]:
    """One observation per member, in chain order."""
    complete = _first_complete(chain, view)
    serving = {m.target for m in chain.members if _serves(m, view(m.target))} | {complete}
    unsure = {m.target for m in chain.members if m.state is SERVING and view(m.target).is_unknown}
    turn = _next_to_copy(chain, view)
    return [
        _observe(
            member,
            view(member.target),
            served=bool(serving - {member.target, None}),
            unsure=bool(unsure - {member.target}),
            is_synced=member.target == synced,
            is_turn=member.target == turn,
            is_complete=member.target == complete,
        )
        for member in chain.members
    ]


def create(chain: ChainRecord, view: View) -> ChainRecord:
    """The first version of a new chain: empty targets are all complete, so all of them serve."""
    members = tuple(
        MemberRecord(m.target, view(m.target).generation, SERVING, view(m.target).incarnation)
        for m in chain.members
    )
    return ChainRecord(
        id=chain.id,
        version=ChainVersion(1),
        members=members,
        last_serving=_serving_set(members, view),
        scheme=chain.scheme,
    )


def check_invariants(chain: ChainRecord) -> None:
    """Asserts what holds for every version of every chain."""
    states = [member.state for member in chain.members]
    assert states == sorted(states, key=ORDER.index), f"{chain} is out of order"
    assert states.count(SYNCING) <= 1, f"{chain} copies to two members at once"
    assert chain.last_serving, f"{chain} has forgotten who holds its data"
    last = {entry.target for entry in chain.last_serving}
    if SERVING in states:
        assert LAST not in states, f"{chain} serves and waits for its last member"
        assert last == {m.target for m in chain.members if m.state is SERVING}, f"{chain}"
    else:
        assert SYNCING not in states, f"{chain} copies from nobody"
        assert {m.target for m in chain.members if m.state is LAST} <= last, f"{chain}"


def _observe(
    member: MemberRecord,
    sight: Sight,
    *,
    served: bool,
    unsure: bool,
    is_synced: bool,
    is_turn: bool,
    is_complete: bool,
) -> Observation:
    if unsure and not served:
        return Observation.UNSURE
    # Heard or not: a LAST member is passed over once another serves, and a copy without a source
    # ends.
    is_settled = member.state is LAST if served else member.state is SYNCING
    if sight.is_unknown and not is_settled:
        return Observation.UNSURE
    if not sight.is_up:
        return Observation.DOWN_SERVED if served else Observation.DOWN_ALONE
    if sight.generation != member.generation:
        return Observation.RECREATED
    if is_complete:
        return Observation.COMPLETE
    if member.state in (SERVING, SYNCING) and sight.incarnation != member.incarnation:
        return Observation.RESTARTED_SERVED if served else Observation.RESTARTED_ALONE
    if not served:
        return Observation.UP_ALONE
    if is_synced:
        return Observation.SYNCED
    return Observation.TURN if is_turn else Observation.UP_SERVED


def _moved(member: MemberRecord, sight: Sight, observation: Observation) -> MemberRecord:
    state = TRANSITIONS[member.state][observation]
    is_recreated = observation is Observation.RECREATED
    generation = sight.generation if is_recreated else member.generation
    is_entered = state in (SERVING, SYNCING) and state is not member.state
    incarnation = sight.incarnation if is_entered else member.incarnation
    return MemberRecord(member.target, generation, state, incarnation)


def _serves(member: MemberRecord, sight: Sight) -> bool:
    return (
        member.state is SERVING
        and sight.is_up
        and sight.incarnation == member.incarnation
        and sight.generation == member.generation
    )


def _next_to_copy(chain: ChainRecord, view: View) -> TargetId | None:
    """The first WAITING member that is up, when somebody serves and nobody is being copied."""
    if any(member.state is SYNCING for member in chain.members):
        return None
    return next(
        (m.target for m in chain.members if m.state is WAITING and view(m.target).is_up), None
    )


def _first_complete(chain: ChainRecord, view: View) -> TargetId | None:
    """The LAST member that may serve again, when nobody does: one that lost nothing, or, when all
    of the set have booted and are back, the first."""
    if any(member.state is SERVING for member in chain.members):
        return None
    last = {entry.target: entry for entry in chain.last_serving}
    back = [m.target for m in chain.members if m.state is LAST and _is_back(last[m.target], view)]
    unharmed = (target for target in back if view(target).boot_id == last[target].boot_id)
    return next(unharmed, back[0] if len(back) == len(last) else None)


def _is_back(entry: LastServing, view: View) -> bool:
    sight = view(entry.target)
    return sight.is_up and sight.generation == entry.generation


def _serving_set(members: tuple[MemberRecord, ...], view: View) -> tuple[LastServing, ...]:
    return tuple(
        LastServing(member.target, member.generation, view(member.target).boot_id)
        for member in members
        if member.state is SERVING
    )
