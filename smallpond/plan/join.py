"""The plan of a join of whole frames: by hash of the keys, or with one side given to all tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from smallpond.errors import PlanError
from smallpond.operators.by_hash import ByHash
from smallpond.operators.engine import quote
from smallpond.plan.relation import ByFiles, Relation
from smallpond.plan.sort import Builder

# For each kind: the SQL, and which sides may be given whole to every task. A side whose unmatched
# rows are part of the result must not be, or each task would report them.
KINDS = {
    "inner": ("inner join", {"left", "right"}),
    "left": ("left join", {"right"}),
    "right": ("right join", {"left"}),
    "full": ("full join", set[str]()),
    "semi": ("semi join", {"right"}),
    "anti": ("anti join", {"right"}),
    "cross": ("cross join", {"left", "right"}),
}


def joined_relation(
    left: Relation,
    right: Relation,
    keys: Sequence[tuple[str, str]],
    hashed: Sequence[tuple[str, str]],
    how: str,
    partitions: int,
    broadcast: str | None,
    build: Builder,
) -> Relation:
    """Rows of both sides that have equal keys.

    Args:
        keys: names of key columns, left and right.
        hashed: SQL of what to hash for them (`hash_keys`).
        how: one of `KINDS`.
        partitions: of a join by hash.
        broadcast: "left" or "right", the side to give whole to every task; None for hash.

    Raises:
        PlanError: an unknown kind, or a side that must not be broadcast for it.
    """
    if how not in KINDS:
        raise PlanError(f"how must be one of {', '.join(KINDS)}, not {how!r}")
    words, may_broadcast = KINDS[how]
    if how == "cross" and broadcast is None:
        broadcast = "right"
    if broadcast is not None and broadcast not in may_broadcast:
        raise PlanError(
            f"a {how} join cannot broadcast its {broadcast} side; use the other, or none"
        )
    if broadcast == "right":
        right = _gathered(right, build)
    elif broadcast == "left":
        left = _gathered(left, build)
    elif left.partitions > 1 or right.partitions > 1:
        left = build(ByHash(partitions, tuple(key for key, _ in hashed)), left)
        right = build(ByHash(partitions, tuple(key for _, key in hashed)), right)
    return build.sql(_query(words, keys), left, right)


def _gathered(relation: Relation, build: Builder) -> Relation:
    return relation if relation.partitions == 1 else build(ByFiles(1), relation)


def _query(words: str, keys: Sequence[tuple[str, str]]) -> str:
    if words == "cross join":
        return "select * from {0} as l cross join {1} as r"
    if all(left == right for left, right in keys):
        names = ", ".join(quote(left) for left, _ in keys)
        return f"select * from {{0}} as l {words} {{1}} as r using ({names})"
    condition = " and ".join(f"l.{quote(a)} = r.{quote(b)}" for a, b in keys)
    return f"select * from {{0}} as l {words} {{1}} as r on {condition}"


def hash_keys(
    keys: Sequence[tuple[str, str]], left: pa.Schema, right: pa.Schema
) -> list[tuple[str, str]]:
    """SQL for what to hash on each side, so that keys SQL finds equal have equal hashes.

    Raises:
        PlanError: a column is missing, or values of the two types never compare equal by hash.
    """
    return [_hash_pair(a, b, left, right) for a, b in keys]


def _hash_pair(a: str, b: str, left: pa.Schema, right: pa.Schema) -> tuple[str, str]:
    one, other = _type_of(a, left), _type_of(b, right)
    if one == other or (pa.types.is_integer(one) and pa.types.is_integer(other)):
        return quote(a), quote(b)
    for belongs, common in ((_is_numeric, "double"), (_is_moment, "timestamp")):
        if belongs(one) and belongs(other):
            return f"{quote(a)}::{common}", f"{quote(b)}::{common}"
    raise PlanError(f"cannot join {a} ({one}) with {b} ({other}); cast one of them first")


def _type_of(name: str, schema: pa.Schema) -> pa.DataType:
    index = schema.get_field_index(name)
    if index < 0:
        raise PlanError(f"no column {name}; there are {', '.join(schema.names)}")
    return schema.field(index).type


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))
