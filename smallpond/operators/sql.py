"""SQL over partitions: `map`, `filter`, `partial_sort`, `partial_sql` and everything fused of them.

The query names its inputs `{0}`, `{1}`, ...; each becomes the name of a view, or of a table when it
is read more than once, so that nothing below is ever evaluated twice. Braces that are not
placeholders are left alone (struct and map literals), and the published escape `{{ }}` works: a
text that contains `{{` is read in that style throughout.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from smallpond.errors import PlanError
from smallpond.operators.rows import Rows, SqlRows
from smallpond.operators.task import TaskContext

_PLACEHOLDER = re.compile(r"\{(\d+|[A-Za-z_][A-Za-z0-9_]*)\}")
_ESCAPED = re.compile(r"\{\{|\}\}|\{(\d+|[A-Za-z_][A-Za-z0-9_]*)\}")
_VOLATILE = re.compile(r"\b(random|uuid|gen_random_uuid|uuidv4|uuidv7|nextval)\s*\(", re.I)


def input_uses(statements: Sequence[str], inputs: int) -> list[int]:
    """How often each input is named.

    Raises:
        PlanError: a placeholder has no input.
    """
    uses = [0] * inputs
    for statement in statements:
        for match in _PLACEHOLDER.finditer(statement.replace("{{", "  ")):
            if match.group(1).isdigit():
                index = int(match.group(1))
                if index >= inputs:
                    raise PlanError(
                        f"the query names input {{{index}}}, but there are {inputs}: {statement}"
                    )
                uses[index] += 1
    return uses


def substitute(statement: str, names: Mapping[str, str]) -> str:
    """Put the names in; placeholders nobody knows are kept as text."""

    def replacement(match: re.Match[str]) -> str:
        if match.group(0) in ("{{", "}}"):
            return match.group(0)[0]
        return names.get(match.group(1), match.group(0))

    pattern = _ESCAPED if "{{" in statement else _PLACEHOLDER
    return pattern.sub(replacement, statement)


def is_volatile(statements: Sequence[str]) -> bool:
    """True if running it twice may give different rows even with equal inputs and threads."""
    return any(_VOLATILE.search(statement) for statement in statements)


@dataclasses.dataclass(frozen=True)
class Sql:
    """Statements run in order; the rows are those of the last one.

    Attributes:
        salt: tells the random numbers of this step from those of others.
    """

    statements: tuple[str, ...]
    salt: int = 0

    def apply(self, inputs: Sequence[Rows], task: TaskContext, label: str) -> Rows:
        engine = next((e for rows in inputs if (e := rows.engine()) is not None), None)
        engine = engine or task.new_engine()
        uses = input_uses(self.statements, len(inputs))
        detail = "query: " + "; ".join(self.statements)
        seed = task.seed_of(f"sql {self.salt}") / 2**63 if is_volatile(self.statements) else None
        with task.step(label, detail):
            if seed is not None:
                engine.seed(seed)
            names = {
                str(index): rows.name_in(engine, uses[index])
                for index, rows in enumerate(inputs)
                if uses[index]
            }
            names |= {
                "partition": str(task.partition),
                "rand_seed": str(task.seed_of("rand_seed") >> 31),
                "cpu_limit": str(task.threads),
                "memory_limit": str(task.memory_bytes),
                "__data_partition__": str(task.partition),
            }
            for statement in self.statements[:-1]:
                engine.connection.execute(substitute(statement, names)).fetchall()
        last = substitute(self.statements[-1], names)
        return SqlRows(engine, last, task, label, detail, seed)
