import json

import pytest

from trainer_io.core.cursor import Cursor, Order, from_state, to_state

ORDER = Order(samples=10**11, fingerprint="0123abcd", seed=7)


def test_a_state_comes_back_from_json_and_is_small() -> None:
    text = json.dumps(to_state(ORDER, Cursor(3, 10**11 - 1)))
    assert len(text) < 1000
    assert from_state(ORDER, json.loads(text)) == Cursor(3, 10**11 - 1)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Order(10**11 - 1, "0123abcd", 7), "samples"),
        (Order(10**11, "ffffffff", 7), "fingerprint"),
        (Order(10**11, "0123abcd", 8), "seed"),
        (Order(10**11, "0123abcd", None), "seed"),
    ],
)
def test_a_state_of_another_order_is_refused_with_what_differs(other: Order, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        from_state(other, to_state(ORDER, Cursor()))


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"epoch": "1"},
        {"sample_in_epoch": -1},
        {"sample_in_epoch": 10**11 + 1},
        {"format": 2},
        {"more": 1},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"state|outside"):
        from_state(ORDER, to_state(ORDER, Cursor()) | change)
