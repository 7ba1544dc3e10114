"""Which targets form a chain: shares by weight, replicas apart, peers balanced.

Each chain takes its members one by one, each time the node that is best by, in this order: a
failure domain not in the chain yet, the fewest chains in common with the members already taken, the
smallest share used of its weight, the lowest id. Pairs of nodes therefore share nearly the same
number of chains, and when a node fails, its recovery is spread over all others. Whoever leads the
fewest chains becomes head.

An integer programme would find exact block designs; the greedy choice is within two chains of the
mean per pair on regular clusters (tested up to ten nodes) and takes uneven ones as they are.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fs3.errors import InvalidArgument
from fs3.ids import NodeId, TargetId


@dataclass(frozen=True, slots=True)
class Place:
    """A node that offers targets.

    Attributes:
        domain: nodes with the same text fail together; empty: it stands for itself.
        weight: its share relative to others.
        targets: not used by any chain yet.
    """

    node: NodeId
    domain: str
    weight: float
    targets: tuple[TargetId, ...]


@dataclass(slots=True)
class _Use:
    place: Place
    taken: int = 0
    led: int = 0
    shared: Counter[NodeId] = field(default_factory=Counter)

    @property
    def domain(self) -> str:
        return self.place.domain or f"node {self.place.node}"

    @property
    def is_full(self) -> bool:
        return self.taken == len(self.place.targets)


def place_chains(
    places: Sequence[Place], *, replicas: int, chains: int
) -> list[tuple[TargetId, ...]]:
    """The members of `chains` new chains, head first.

    Domains are kept apart as far as there are enough of them; nodes always.

    Raises:
        InvalidArgument: there are too few nodes or targets.
    """
    if len(places) < replicas:
        raise InvalidArgument(
            f"{replicas} replicas need as many storage nodes; there are {len(places)}"
        )
    uses = [_Use(place) for place in sorted(places, key=lambda place: place.node)]
    return [_place_one(uses, replicas, made) for made in range(chains)]


def _place_one(uses: Sequence[_Use], replicas: int, made: int) -> tuple[TargetId, ...]:
    members: list[_Use] = []
    for _ in range(replicas):
        candidates = [use for use in uses if not use.is_full and use not in members]
        if not candidates:
            raise InvalidArgument(
                f"the storage nodes offer targets for {made} chains of {replicas} replicas only; "
                "raise targets_per_disk, or ask for fewer chains"
            )
        members.append(min(candidates, key=lambda use: _cost(use, members)))
    head = min(members, key=lambda use: (use.led / use.place.weight, use.place.node))
    head.led += 1
    members.sort(key=lambda use: use is not head)
    return tuple(_take(members))


def _cost(use: _Use, members: Sequence[_Use]) -> tuple[bool, float, float, NodeId]:
    weight = use.place.weight
    return (
        any(use.domain == member.domain for member in members),
        sum(use.shared[member.place.node] for member in members) / weight,
        (use.taken + 1) / weight,
        use.place.node,
    )


def _take(members: Sequence[_Use]) -> Iterator[TargetId]:
    for use in members:
        use.shared.update(m.place.node for m in members if m is not use)
        yield use.place.targets[use.taken]
        use.taken += 1
