"""Settings of the cluster manager and of the metadata service's process."""

from typing import Annotated

import msgspec

from fs3.config.metadata import MetadataConfig

Positive = Annotated[float, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class MembershipConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a node counts as dead.

    Attributes:
        heartbeat_period_s: of every node.
        suspect_after_s: silence after which the liveness port of a node is asked; again as often
            while it stays silent.
        dead_after_s: silence after which a node is dead.
        restraint_s: nobody is declared dead by silence for so long after the manager started, or
            after its own loop lagged: it may be the deaf one.
        lag_max_s: delay of its own loop that starts such a restraint.
        mass_silence_s: silence after which nodes are dead although more than half of them fell
            silent at once, which looks more like our own network than like theirs.
        evidence_window_s: a refusal seen by the manager and one seen by a peer count together when
            they are at most so far apart.
        proof_by_refusal: a node whose liveness port refuses the manager and a peer is gone. Turn it
            off where addresses are translated, since a translator may refuse for somebody else.
    """

    heartbeat_period_s: Positive = 0.3
    suspect_after_s: Positive = 0.7
    dead_after_s: Positive = 2.0
    restraint_s: Positive = 2.0
    lag_max_s: Positive = 0.3
    mass_silence_s: Positive = 10.0
    evidence_window_s: Positive = 1.0
    proof_by_refusal: bool = True


class FormationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first chain table is made once `nodes` storage nodes have registered."""

    nodes: Count = 3
    replicas: Count = 2
    chains: Count = 12


class ManagerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of `python -m meta_service`.

    Attributes:
        directory: of the embedded metadata store.
        host: address to listen on and to be reached at.
        port: of the cluster manager (gRPC); this is the port in the cluster's URL.
        metadata_port: of the metadata service (fs3rpc); 0 for any free one.
        tick_s: how often silence is looked at.
        probe_timeout_s: how long a liveness port may take to answer.
        client_expires_s: silence after which a client process counts as dead.
        metadata: settings of the metadata service in the same process.
    """

    directory: str
    host: str = "127.0.0.1"
    port: Port
    metadata_port: Port = 0
    tick_s: Positive = 0.1
    probe_timeout_s: Positive = 0.2
    client_expires_s: Positive = 20.0
    membership: MembershipConfig = MembershipConfig()
    formation: FormationConfig = FormationConfig()
    metadata: MetadataConfig = MetadataConfig()
