"""Settings of a storage node: `python -m storage_node`."""

from typing import Annotated

import msgspec

from fs3.config.manager import Count, Port, Positive
from fs3.units import MIB


class StorageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of one node.

    Attributes:
        manager: URL of the cluster, `fs3://HOST:PORT`.
        directory: of the node: its identity, and its targets where `disks` is empty.
        node_id: wanted when the node first registers, given when it is free; 0 for the next one.
        disks: one directory per disk, for targets; each keeps its number for ever.
        targets_per_disk: created when a disk is first seen.
        host: address to listen on and to be reached at.
        shards: threads that serve targets; targets are spread over them.
        control_port: of StorageControl (gRPC); 0 for any free one.
        domain: nodes with the same text fail together (a rack); empty: the node stands for itself.
        weight: share of chains relative to other nodes.
        inflight_bytes_max: memory for requests under way, per shard.
        reconnect_s: pause before the manager is tried again.
    """

    manager: str
    directory: str
    node_id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    disks: tuple[str, ...] = ()
    targets_per_disk: Count = 8
    host: str = "127.0.0.1"
    shards: Count = 1
    control_port: Port = 0
    domain: str = ""
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    inflight_bytes_max: Annotated[int, msgspec.Meta(ge=MIB)] = 256 * MIB
    reconnect_s: Positive = 0.1
