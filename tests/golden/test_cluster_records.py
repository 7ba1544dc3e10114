"""The manager's stored records and the liveness record are formats: these bytes stay readable.

`cluster_records.txt` has one line per example, its name and its bytes in hexadecimal.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fs3.ids import ChainId, ChainVersion, ClusterId, Incarnation, NodeId, TargetId
from fs3.model.routing import ChainTable, NodeKind, NodeState, TargetState
from fs3.wire import cluster_records as records
from fs3.wire import liveness
from fs3.wire.cluster_records import (
    ChainRecord,
    ClusterRecord,
    LastServing,
    MemberRecord,
    NodeRecord,
    PrimaryLease,
    TargetRecord,
)
from fs3.wire.records import FORMAT, Codec

GOLDEN = dict(
    line.split(" ", 1)
    for line in (Path(__file__).parent / "cluster_records.txt").read_text().splitlines()
)

TARGET, GENERATION = TargetId(5 << 32 | 1 << 16 | 2), (1 << 63) - 1

VALUES: dict[str, tuple[Codec[Any], Any]] = {
    "cluster": (
        records.CLUSTER,
        ClusterRecord(ClusterId(bytes(range(16))), 1, 1_700_000_000_000_000_000, 42, 4),
    ),
    "node": (
        records.NODE,
        NodeRecord(
            id=NodeId(5),
            kind=NodeKind.STORAGE,
            identity=b"i" * 16,
            incarnation=Incarnation((1 << 63) - 3),
            boot_id="boot",
            state=NodeState.ALIVE,
            host="10.0.0.1",
            port=7001,
            liveness_port=7002,
            domain="rack 4",
            weight=1.5,
            targets=(TargetRecord(TARGET, GENERATION, 7001),),
            control_port=7003,
        ),
    ),
    "chain": (
        records.CHAIN,
        ChainRecord(
            id=ChainId(6),
            version=ChainVersion(9),
            members=(
                MemberRecord(TARGET, GENERATION, TargetState.SERVING, Incarnation(11)),
                MemberRecord(TargetId(7 << 32), 3, TargetState.OFFLINE),
            ),
            last_serving=(LastServing(TARGET, GENERATION, "boot"),),
        ),
    ),
    "table": (records.TABLE, ChainTable(1, 2, (ChainId(6), ChainId(7)))),
    "primary": (records.PRIMARY, PrimaryLease(3, Incarnation(11), "10.0.0.1:7000")),
}


@pytest.mark.parametrize("name", VALUES)
def test_records_keep_their_bytes(name: str) -> None:
    codec, record = VALUES[name]
    assert codec.encode(record).hex() == GOLDEN[name]
    assert codec.decode(bytes.fromhex(GOLDEN[name])) == record


def test_a_node_record_without_later_fields_is_read() -> None:
    fields = msgspec.msgpack.decode(bytes.fromhex(GOLDEN["node"])[1:])
    older = FORMAT + msgspec.msgpack.encode(fields[:3])
    assert records.NODE.decode(older) == NodeRecord(NodeId(5), NodeKind.STORAGE, b"i" * 16)


def test_liveness_record() -> None:
    data = liveness.encode(NodeId(5), Incarnation(0x0102030405060708))
    assert data.hex() == GOLDEN["liveness"]
    assert len(data) == liveness.SIZE == 16
    assert liveness.decode(data, NodeId(5)) == 0x0102030405060708


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 400 Bad", bytes(16), bytes(17)])
def test_somebody_else_on_the_port_is_not_the_node(data: bytes) -> None:
    assert liveness.decode(data, NodeId(0)) is None


def test_another_node_on_the_port_is_not_the_node() -> None:
    assert liveness.decode(liveness.encode(NodeId(6), Incarnation(1)), NodeId(5)) is None
