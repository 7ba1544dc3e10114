"""Values that the cluster manager keeps in the metadata store; keys are in `fs3.wire.keys`."""

from typing import Final

import msgspec

from fs3.ids import ChainId, ChainVersion, ClusterId, Incarnation, NodeId, TargetId
from fs3.model.routing import ChainTable, NodeKind, NodeState, TargetState
from fs3.wire.records import Codec

FEATURE_LEVEL: Final = 1
"""Of new clusters. A level gates encodings and behaviour that older nodes would not understand."""


class ClusterRecord(msgspec.Struct, frozen=True, array_like=True):
    """Exists once; written when the store is formatted.

    Attributes:
        feature_level: raised by command once all nodes support it.
        routing_version: of the newest routing; it goes on growing under the next primary.
        next_node: the node id that is given next.
    """

    cluster_id: ClusterId
    feature_level: int
    created_ns: int
    routing_version: int = 0
    next_node: int = 1


class TargetRecord(msgspec.Struct, frozen=True, array_like=True):
    id: TargetId
    generation: int
    port: int


class NodeRecord(msgspec.Struct, frozen=True, array_like=True):
    """A node as it last registered.

    Attributes:
        identity: 16 random bytes from the node's directory; the same identity keeps its id.
        incarnation: of its process; 0 when it never registered.
        boot_id: of its host: unchanged means that the page cache survived.
        state: as last published.
        liveness_port: refuses connections only once that process is gone.
    """

    id: NodeId
    kind: NodeKind
    identity: bytes
    incarnation: Incarnation = Incarnation(0)
    boot_id: str = ""
    state: NodeState = NodeState.DEAD
    host: str = ""
    port: int = 0
    liveness_port: int = 0
    domain: str = ""
    weight: float = 1.0
    targets: tuple[TargetRecord, ...] = ()
    control_port: int = 0


class MemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """A target in its chain.

    Attributes:
        incarnation: of its node when it became SERVING or SYNCING: another one has lost whatever
            was under way, so it does not continue in that state.
    """

    target: TargetId
    generation: int
    state: TargetState
    incarnation: Incarnation = Incarnation(0)


class LastServing(msgspec.Struct, frozen=True, array_like=True):
    """A member of the newest set that served together: it holds every acknowledged write, unless
    its host has booted since (`boot_id`) or the target was created anew (`generation`)."""

    target: TargetId
    generation: int
    boot_id: str


class ChainRecord(msgspec.Struct, frozen=True, array_like=True):
    id: ChainId
    version: ChainVersion
    members: tuple[MemberRecord, ...]
    last_serving: tuple[LastServing, ...]
    scheme: str = "replicated"


class PrimaryLease(msgspec.Struct, frozen=True, array_like=True):
    """Who may write as the manager. Each write checks in its own transaction that it still holds
    the newest epoch, so a deposed primary conflicts.

    Attributes:
        epoch: raised by each new primary.
        holder: incarnation of the primary's process.
    """

    epoch: int
    holder: Incarnation
    address: str


CLUSTER: Final = Codec(ClusterRecord)
NODE: Final = Codec(NodeRecord)
CHAIN: Final = Codec(ChainRecord)
TABLE: Final = Codec(ChainTable)
PRIMARY: Final = Codec(PrimaryLease)
