"""The plan of a global sort: sample, cut into ranges, sort each range."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from smallpond.operators.by_range import ByRange, FindRange, SortTerm, order_by, sort_key
from smallpond.operators.sql import Sql
from smallpond.plan.relation import ByFiles, ByRows, Relation, Resources

_SAMPLE_ROWS_MIN = 2_000
_SAMPLE_ROWS_PER_RANGE = 200  # keeps ranges within about a fifth of each other


@dataclasses.dataclass(frozen=True)
class Builder:
    """Makes the relations of one user-visible operation, all with its label and resources."""

    label: str
    resources: Resources
    next_salt: Callable[[], int]

    def __call__(self, operator: object, *inputs: Relation) -> Relation:
        return Relation(operator, inputs, label=self.label, resources=self.resources)  # type: ignore[arg-type]

    def sql(self, statement: str, *inputs: Relation) -> Relation:
        return self(Sql((statement,), self.next_salt()), *inputs)


def is_countable_source(relation: Relation) -> bool:
    """True if the relation is files that can be cut by rows without reading them."""
    return bool(getattr(relation.operator, "has_row_counts", False))


def sorted_relation(
    source: Relation, terms: Sequence[str], partitions: int, readers: int, build: Builder
) -> Relation:
    """Rows in order over `partitions` partitions.

    Args:
        source: what to sort.
        terms: `key [asc|desc] [nulls first|last]` each.
        partitions: of the result.
        readers: tasks that read an unpartitioned source of files.
    """
    parsed = tuple(SortTerm.parse(term) for term in terms)
    ordered = f"select * from {{0}} order by {order_by(parsed)}"
    if partitions == 1:
        gathered = source if source.partitions == 1 else build(ByFiles(1), source)
        return build.sql(ordered, gathered)
    if source.partitions == 1 and is_countable_source(source):
        source = build(ByRows(readers), source)
    rows = max(_SAMPLE_ROWS_MIN, _SAMPLE_ROWS_PER_RANGE * partitions) // source.partitions + 1
    sample = build.sql(
        f"select {sort_key(parsed)} as key from {{0}} using sample reservoir({rows} rows) "
        "repeatable (42)",
        source,
    )
    found = build(FindRange(partitions, parsed), source, build(ByFiles(1), sample))
    return build.sql(ordered, build(ByRange(partitions), found))


def split_terms(text: str) -> list[str]:
    """The terms of `"a desc, f(b, c)"`: cut at commas outside parentheses and quotes."""
    terms, depth, quote, start = [], 0, "", 0
    for position, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            terms.append(text[start:position])
            start = position + 1
    return [*terms, text[start:]]
