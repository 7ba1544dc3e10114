"""The plans of `group_by(...).agg(...)` and `distinct`: equal keys meet, then each partition."""

from __future__ import annotations

from collections.abc import Sequence

from smallpond.operators.by_hash import ByHash
from smallpond.plan.relation import ByFiles, Relation
from smallpond.plan.sort import Builder


def aggregated_relation(
    source: Relation,
    keys: Sequence[str],
    aggregates: Sequence[str],
    partitions: int,
    build: Builder,
) -> Relation:
    """One row per distinct value of the keys, or one row if there are none."""
    together = met(source, keys, partitions, build)
    if not keys:
        return build.sql(f"select {', '.join(aggregates)} from {{0}}", together)
    items = ", ".join([*keys, *aggregates])
    numbers = ", ".join(str(index + 1) for index in range(len(keys)))
    return build.sql(f"select {items} from {{0}} group by {numbers}", together)


def distinct_relation(
    source: Relation,
    columns: Sequence[str],
    on: Sequence[str] | None,
    partitions: int,
    build: Builder,
) -> Relation:
    """One row per distinct row, or one whole row per distinct value of `on`."""
    together = met(source, on or columns, partitions, build)
    if on is None:
        return build.sql("select distinct * from {0}", together)
    return build.sql(f"select distinct on ({', '.join(on)}) * from {{0}}", together)


def met(source: Relation, keys: Sequence[str], partitions: int, build: Builder) -> Relation:
    """The source with equal keys in one partition, moved only if it has to be."""
    if source.partitions == 1 and partitions == 1:
        return source
    if not keys:
        return build(ByFiles(1), source)
    return build(ByHash(partitions, tuple(keys)), source)
