"""Chains step by step, as transcripts: what is seen, and the versions that the chain takes."""

import pytest

from fs3.ids import ChainId, ChainVersion, Incarnation, NodeId, TargetId, node_of, target_id
from fs3.model.routing import TargetState
from fs3.wire.cluster_records import ChainRecord, LastServing, MemberRecord
from meta_service.core import chains
from meta_service.core.chains import Sight
from meta_service.core.membership import Standing

TARGETS = {name: target_id(NodeId(node), 0, 0) for node, name in enumerate("ABC", 1)}
NAMES = {target: name for name, target in TARGETS.items()}
STATES = {
    "s": TargetState.SERVING,
    "y": TargetState.SYNCING,
    "w": TargetState.WAITING,
    "l": TargetState.LAST,
    "o": TargetState.OFFLINE,
}
LETTERS = {state: letter for letter, state in STATES.items()}
BOOT, REBOOTED = "boot-1", "boot-2"


class World:
    """What the manager sees, changed by words: `A-` down, `A+` up, `A*` restarted (a new
    incarnation), `A!` restarted on a rebooted host, `A?` unknown, `A0` recreated empty."""

    def __init__(self) -> None:
        self.sights = {
            target: Sight(Standing.ALIVE, Incarnation(1), 7, BOOT) for target in TARGETS.values()
        }

    def change(self, words: str) -> TargetId | None:
        synced = None
        for name, what in words.split() and [(w[0], w[1]) for w in words.split()]:
            target = TARGETS[name]
            sight = self.sights[target]
            restarted = Incarnation(sight.incarnation + 1)
            match what:
                case "-":
                    sight = sight._replace(standing=Standing.DEAD)
                case "+":
                    sight = sight._replace(standing=Standing.ALIVE)
                case "?":
                    sight = sight._replace(standing=Standing.UNKNOWN)
                case "*":
                    sight = sight._replace(standing=Standing.ALIVE, incarnation=restarted)
                case "!":
                    sight = Sight(Standing.ALIVE, restarted, sight.generation, REBOOTED)
                case "0":
                    sight = Sight(Standing.ALIVE, restarted, sight.generation + 1, BOOT)
                case "=":
                    synced = target
            self.sights[target] = sight
        return synced

    def __call__(self, target: TargetId) -> Sight:
        return self.sights[target]


def parse(text: str, world: World) -> ChainRecord:
    """`As Bw` -> a chain; whoever serves, or else is LAST, is the last serving set."""
    members = [(TARGETS[word[0]], STATES[word[1]]) for word in text.split()]
    serving = [t for t, s in members if s is TargetState.SERVING]
    last = serving or [t for t, s in members if s is TargetState.LAST]
    return ChainRecord(
        ChainId(1),
        ChainVersion(1),
        tuple(MemberRecord(t, world(t).generation, s, world(t).incarnation) for t, s in members),
        tuple(LastServing(t, world(t).generation, world(t).boot_id) for t in last),
    )


def draw(chain: ChainRecord) -> str:
    return " ".join(f"{NAMES[m.target]}{LETTERS[m.state]}" for m in chain.members)


def run(start: str, *words: str) -> list[str]:
    """The versions that the chain goes through, one list of `>`-joined versions per word."""
    world = World()
    chain = parse(start, world)
    transcript = []
    for change in words:
        synced = world.change(change)
        versions = []
        while (following := chains.step(chain, world, synced)) is not None:
            assert following.version == chain.version + 1
            chains.check_invariants(following)
            chain, synced = following, None
            versions.append(draw(chain))
        transcript.append(" > ".join(versions))
    return transcript


TRANSCRIPTS = {
    "a killed tail is dropped at once": ("As Bs", {"B-": "As Bo"}),
    "a killed head leaves the tail": ("As Bs", {"A-": "Bs Ao"}),
    "a returning node is copied, then serves": (
        "As Bs",
        {"B-": "As Bo", "B*": "As Bw > As By", "B=": "As Bs"},
    ),
    "a silent node that comes back with the same incarnation is copied too": (
        "As Bs",
        {"B-": "As Bo", "B+": "As Bw > As By", "B=": "As Bs"},
    ),
    "a quick restart never goes on serving": ("As Bs", {"B*": "As Bw > As By", "B=": "As Bs"}),
    "the last one to serve returns first": (
        "As Bs",
        {
            "A-": "Bs Ao",
            "B-": "Bl Ao",
            "A*": "Bl Aw",
            "B*": "Bs Ay",
            "A=": "Bs As",
        },
    ),
    "everything killed at once: the first that is back serves, the other is copied": (
        "As Bs",
        {"A? B?": "", "A*": "", "B*": "Al Bl > As Bw > As By", "B=": "As Bs"},
    ),
    "everything killed, only one returns, the other is found dead": (
        "As Bs",
        {"A? B?": "", "A*": "", "B-": "Al Bl > As Bo"},
    ),
    "hosts rebooted: the whole set is waited for": (
        "As Bs",
        {"A- B-": "Al Bl", "A!": "", "B!": "As Bw > As By"},
    ),
    "one host rebooted, the other did not: that one is complete alone": (
        "As Bs",
        {"A- B-": "Al Bl", "A!": "", "B*": "Bs Aw > Bs Ay"},
    ),
    "a single replica returns after a reboot": ("As", {"A-": "Al", "A!": "As"}),
    "a replaced disk is filled": ("As Bs", {"B-": "As Bo", "B0": "As Bw > As By", "B=": "As Bs"}),
    "the last copy was lost: nobody serves an empty target": (
        "As",
        {"A-": "Al", "A0": "Aw", "A*": ""},
    ),
    "the source dies during a copy": (
        "As Bs Cs",
        {
            "B- C-": "As Bo Co",
            "C*": "As Cw Bo > As Cy Bo",
            "A-": "Al Cw Bo",
            "A*": "As Cy Bo",
        },
    ),
    "one is copied at a time": (
        "As Bs Cs",
        {
            "B- C-": "As Bo Co",
            "B* C*": "As Bw Cw > As By Cw",
            "B=": "As Bs Cw > As Bs Cy",
            "C=": "As Bs Cs",
        },
    ),
    "a member that may serve elsewhere is not passed over": (
        "As Bs",
        {"A?": "", "B*": "", "A+": "As Bw > As By"},
    ),
    "a copy whose source died ends, though the manager has not heard of it yet": (
        "As By",
        {"B?": "", "A-": "Al Bo", "B+": "Al Bw"},
    ),
    "a last member that is not heard is passed over": (
        "Al Bl",
        {"A- B-": "", "B?": "", "A+": "As Bo", "B+": "As Bw > As By"},
    ),
    "a copy that restarts is copied from the start": (
        "As Bs",
        {"B*": "As Bw > As By", "B* ": "As Bw > As By", "B=": "As Bs"},
    ),
    "the last member hung and comes back unchanged": ("As", {"A-": "Al", "A+": "As"}),
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(name: str) -> None:
    start, lines = TRANSCRIPTS[name]
    assert run(start, *lines) == list(lines.values())


def test_an_older_copy_report_changes_nothing() -> None:
    """SYNCED counts for the SYNCING member alone; the caller checks the version."""
    assert run("As Bw", "B-", "B=") == ["As Bo", ""]


def test_a_new_chain_serves_with_all_members() -> None:
    world = World()
    chain = chains.create(parse("As Bs Cs", world), world)
    chains.check_invariants(chain)
    assert chain.version == 1
    assert {node_of(entry.target) for entry in chain.last_serving} == {1, 2, 3}


@pytest.mark.parametrize(
    "broken",
    ["Bw As", "As By Cy", "As Bl", "By"],
    ids=["order", "two copies", "serving and last", "copy of nobody"],
)
def test_invariants_can_fail(broken: str) -> None:
    with pytest.raises(AssertionError):
        chains.check_invariants(parse(broken, World()))
