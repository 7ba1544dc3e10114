"""Placeholders and braces in SQL texts."""

from __future__ import annotations

import pytest

from smallpond.errors import PlanError
from smallpond.operators.sql import input_uses, is_volatile, substitute

NAMES = {"0": "first", "1": "second", "rand_seed": "7"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select * from {0} join {1}", "select * from first join second"),
        ("select {'x': a} from {0}", "select {'x': a} from first"),
        ("select {'x': {'y': a}} from {0}", "select {'x': {'y': a}} from first"),
        ("select {{'x': {{'y': a}}}} from {0}", "select {'x': {'y': a}} from first"),
        ("select map {'a': 1}, {unknown} from {0}", "select map {'a': 1}, {unknown} from first"),
        ("select setseed({rand_seed})", "select setseed(7)"),
        ("select '{}' from {0}", "select '{}' from first"),
        ("select regexp_matches(a, '[0-9]{2}') from {0}", None),
    ],
)
def test_substitution(text: str, expected: str | None) -> None:
    if expected is None:  # a number in braces is always an input, as published
        with pytest.raises(PlanError, match=r"names input \{2\}"):
            input_uses([text], 1)
    else:
        assert substitute(text, NAMES) == expected


def test_uses_are_counted_over_all_statements() -> None:
    assert input_uses(["create table t as from {0}", "from t join {1} join {1}"], 3) == [1, 2, 0]
    assert input_uses(["select '{{0}}'"], 1) == [0]


def test_random_functions_are_noticed() -> None:
    assert is_volatile(["select RANDOM ()"])
    assert is_volatile(["select 1", "select uuid()"])
    assert not is_volatile(["select random, my_random(1) from t"])
