"""Engines against a dictionary: random transactions with overlays inside, some aborted."""

import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meta_service.kv.memory import MemoryEngine
from meta_service.kv.overlay import Overlay
from meta_service.kv.rocksdb import RocksDbEngine
from meta_service.kv.transaction import Engine, Transaction

KEYS = st.binary(min_size=1, max_size=2).map(lambda b: bytes(c % 5 for c in b))
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, st.binary(max_size=2)),
    st.tuples(st.just("clear"), KEYS),
    st.tuples(st.just("clear_range"), KEYS, KEYS),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("scan"), KEYS, KEYS, st.integers(1, 6), st.booleans()),
)
BATCH = st.lists(st.tuples(st.lists(STEPS, max_size=8), st.booleans()), max_size=4)
"""Operations of one transaction, each kept or dropped as a whole."""


class Dropped(Exception):
    pass


def step_on_model(model: dict[bytes, bytes], step: tuple[Any, ...]) -> Any:
    match step:
        case ("set", key, value):
            model[key] = value
        case ("clear", key):
            model.pop(key, None)
        case ("clear_range", begin, end):
            for key in [key for key in model if begin <= key < end]:
                del model[key]
        case ("get", key):
            return model.get(key)
        case ("scan", begin, end, limit, reverse):
            inside = sorted(item for item in model.items() if begin <= item[0] < end)
            return (inside[::-1] if reverse else inside)[:limit]
    return None


def step_on_transaction(t: Transaction, step: tuple[Any, ...]) -> Any:
    match step:
        case ("scan", begin, end, limit, reverse):
            return t.scan(begin, end, limit=limit, reverse=reverse)
        case (name, *arguments):
            return getattr(t, name)(*arguments)


def run_batch(t: Transaction, batch: list[Any], model: dict[bytes, bytes]) -> dict[bytes, bytes]:
    for steps, is_kept in batch:
        overlay, attempt = Overlay(t), dict(model)
        for step in steps:
            assert step_on_transaction(overlay, step) == step_on_model(attempt, step), step
        if is_kept:
            overlay.apply_to(t)
            model = attempt
    return model


def check(engine: Engine, transactions: list[tuple[list[Any], bool]]) -> None:
    model: dict[bytes, bytes] = {}
    for batch, is_kept in transactions:
        expected = dict(model)

        def body(t: Transaction) -> dict[bytes, bytes]:
            after = run_batch(t, batch, expected)  # noqa: B023
            if not is_kept:  # noqa: B023
                raise Dropped
            return after

        try:
            model = engine.transact(body)
        except Dropped:
            assert not is_kept
        stored = engine.transact(lambda t: t.scan(b"", b"\xff", limit=1000))
        assert stored == sorted(model.items())


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
@settings(max_examples=150, deadline=None)
@given(transactions=st.lists(st.tuples(BATCH, st.booleans()), max_size=5))
def test_engine_matches_a_dictionary(kind: str, transactions: list[tuple[list[Any], bool]]) -> None:
    if kind == "memory":
        check(MemoryEngine(), transactions)
        return
    with tempfile.TemporaryDirectory() as directory:
        engine = RocksDbEngine(directory, cached_keys_max=6)
        try:
            check(engine, transactions)
        finally:
            engine.close()
