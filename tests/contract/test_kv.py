"""What every key-value engine promises, run on each of them."""

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fs3.errors import Unavailable
from meta_service.kv.memory import MemoryEngine
from meta_service.kv.rocksdb import RocksDbEngine
from meta_service.kv.transaction import Engine, Transaction


@pytest.fixture(params=["memory", "rocksdb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made: Engine = (
        MemoryEngine() if request.param == "memory" else RocksDbEngine(str(tmp_path / "kv"))
    )
    yield made
    made.close()


def put(engine: Engine, *keys: str) -> None:
    def body(transaction: Transaction) -> None:
        for key in keys:
            transaction.set(key.encode(), key.upper().encode())

    engine.transact(body)


def everything(engine: Engine) -> list[tuple[bytes, bytes]]:
    return engine.transact(lambda t: t.scan(b"", b"\xff", limit=1000))


def keys_of(pairs: list[tuple[bytes, bytes]]) -> str:
    return " ".join(key.decode() for key, _ in pairs)


def test_get_set_clear(engine: Engine) -> None:
    put(engine, "a", "b")
    engine.transact(lambda t: t.clear(b"a"))
    assert engine.transact(lambda t: (t.get(b"a"), t.get(b"b"))) == (None, b"B")
    assert engine.transact(lambda t: t.get_snapshot(b"b")) == b"B"


def test_values_may_be_empty_and_keys_hold_any_byte(engine: Engine) -> None:
    engine.transact(lambda t: t.set(b"\x00\xff\x00", b""))
    assert everything(engine) == [(b"\x00\xff\x00", b"")]


def test_scan_is_half_open_ordered_and_limited(engine: Engine) -> None:
    put(engine, "e", "c", "a", "b", "d")
    assert keys_of(engine.transact(lambda t: t.scan(b"b", b"e", limit=9))) == "b c d"
    assert keys_of(engine.transact(lambda t: t.scan(b"b", b"e", limit=2))) == "b c"
    assert keys_of(engine.transact(lambda t: t.scan(b"b", b"e", limit=2, reverse=True))) == "d c"
    assert engine.transact(lambda t: t.scan(b"b", b"b", limit=9)) == []
    assert engine.transact(lambda t: t.scan(b"d", b"b", limit=9)) == []


def test_own_writes_are_seen_by_get_and_scan(engine: Engine) -> None:
    put(engine, "a", "b", "c", "d")

    def body(t: Transaction) -> None:
        t.set(b"bb", b"new")
        t.clear(b"a")
        t.set(b"c", b"changed")
        assert t.get(b"a") is None
        assert t.get(b"c") == b"changed"
        assert keys_of(t.scan(b"", b"z", limit=9)) == "b bb c d"
        assert keys_of(t.scan(b"", b"z", limit=2)) == "b bb"
        assert keys_of(t.scan(b"", b"z", limit=3, reverse=True)) == "d c bb"
        t.clear(b"bb")
        t.set(b"a", b"again")
        assert keys_of(t.scan(b"", b"z", limit=9)) == "a b c d"

    engine.transact(body)
    assert everything(engine) == [(b"a", b"again"), (b"b", b"B"), (b"c", b"changed"), (b"d", b"D")]


def test_clear_range_hides_what_was_and_not_what_comes(engine: Engine) -> None:
    put(engine, "a", "b", "c", "d", "e")

    def body(t: Transaction) -> None:
        t.set(b"bb", b"gone too")
        t.clear_range(b"b", b"d")
        t.set(b"c", b"back")
        assert t.get(b"b") is None
        assert t.get(b"bb") is None
        assert t.get(b"d") == b"D"
        assert keys_of(t.scan(b"", b"z", limit=9)) == "a c d e"
        assert keys_of(t.scan(b"", b"z", limit=2)) == "a c"
        assert keys_of(t.scan(b"", b"z", limit=2, reverse=True)) == "e d"
        t.clear_range(b"e", b"f")
        assert keys_of(t.scan(b"", b"z", limit=9, reverse=True)) == "d c a"

    engine.transact(body)
    assert keys_of(everything(engine)) == "a c d"
    engine.transact(lambda t: t.clear_range(b"", b"\xff"))
    assert everything(engine) == []


def test_what_is_raised_aborts_and_passes_through(engine: Engine) -> None:
    put(engine, "a")

    def body(t: Transaction) -> None:
        t.set(b"b", b"never")
        t.clear(b"a")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        engine.transact(body)
    assert keys_of(everything(engine)) == "a"


def test_a_closed_engine_is_unavailable(engine: Engine) -> None:
    engine.close()
    with pytest.raises(Unavailable, match="closed"):
        engine.transact(lambda t: t.get(b"a"))


def test_sync_after_any_commit(engine: Engine) -> None:
    engine.transact(lambda t: t.set(b"a", b"1"), sync=True)
    engine.transact(lambda t: t.get(b"a"), sync=True)
    engine.sync()
    assert keys_of(everything(engine)) == "a"


class Together:
    """Bodies of two threads that wait for each other in the middle, if the engine lets them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._barrier = threading.Barrier(2)
        self.attempts = 0

    def meet(self) -> None:
        self.attempts += 1
        try:
            self._barrier.wait(timeout=0.2)
        except threading.BrokenBarrierError:
            return

    def run(self, *bodies: Callable[[Transaction], object]) -> None:
        threads = [threading.Thread(target=self._engine.transact, args=(b,)) for b in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_increments_are_never_lost(engine: Engine) -> None:
    engine.transact(lambda t: t.set(b"n", b"0"))

    def increment(t: Transaction) -> None:
        t.set(b"n", b"%d" % (int(t.get(b"n") or b"0") + 1))

    def many() -> None:
        for _ in range(50):
            engine.transact(increment)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.transact(lambda t: t.get(b"n")) == b"200"


def test_no_write_skew(engine: Engine) -> None:
    """Two doctors on call; each may leave if the other stays. One must remain."""
    for doctor in (b"x", b"y"):
        engine.transact(lambda t, d=doctor: t.set(d, b"on"))  # type: ignore[misc]
    together = Together(engine)

    def leave(mine: bytes, other: bytes) -> Callable[[Transaction], None]:
        def body(t: Transaction) -> None:
            other_stays = t.get(other) == b"on"
            together.meet()
            if other_stays:
                t.set(mine, b"off")

        return body

    together.run(leave(b"x", b"y"), leave(b"y", b"x"))
    on = engine.transact(lambda t: [t.get(b"x"), t.get(b"y")].count(b"on"))
    assert on == 1


@pytest.mark.parametrize("change", ["insert", "clear_range"])
def test_a_range_that_was_read_conflicts(engine: Engine, change: str) -> None:
    """An empty range read and a key put into it by another: both orders are not possible."""
    put(engine, "k5")
    together = Together(engine)

    def count(t: Transaction) -> None:
        found = len(t.scan(b"k", b"l", limit=100))
        together.meet()
        t.set(b"count", b"%d" % found)

    def other(t: Transaction) -> None:
        counted = t.get(b"count")
        together.meet()
        if change == "insert":
            t.set(b"k7", b"")
        else:
            t.clear_range(b"k0", b"k9")
        t.set(b"seen", counted or b"none")

    together.run(count, other)
    final = {"insert": b"2", "clear_range": b"0"}[change]
    counted, seen = engine.transact(lambda t: (t.get(b"count"), t.get(b"seen")))
    # Either the counter ran first and the other saw its count, or it counted the change.
    assert (counted, seen) in [(b"1", b"1"), (final, b"none")]


def test_a_limited_scan_conflicts_only_as_far_as_it_read(engine: Engine) -> None:
    put(engine, "a", "b", "z")
    together = Together(engine)

    def first(t: Transaction) -> None:
        t.scan(b"a", b"zz", limit=1)
        together.meet()
        t.set(b"first", b"1")

    def far(t: Transaction) -> None:
        together.meet()
        t.set(b"y", b"beyond what the scan saw")

    together.run(first, far)
    assert together.attempts == 2, "nobody had to run again"


def test_a_snapshot_read_does_not_conflict_unless_asked(engine: Engine) -> None:
    put(engine, "n")
    together = Together(engine)

    def reader(t: Transaction) -> None:
        t.get_snapshot(b"n")
        together.meet()
        t.set(b"r", b"1")

    def writer(t: Transaction) -> None:
        together.meet()
        t.set(b"n", b"changed")

    together.run(reader, writer)
    assert together.attempts == 2


def test_readers_see_one_moment(engine: Engine) -> None:
    """A pair always written together is never seen half."""
    stop = threading.Event()

    def put_pair(value: bytes, t: Transaction) -> None:
        t.set(b"left", value)
        t.set(b"right", value)

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            engine.transact(functools.partial(put_pair, b"%d" % n))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(200):
            left, right = engine.transact(lambda t: (t.get(b"left"), t.get(b"right")))
            assert left == right
    finally:
        stop.set()
        thread.join()
