"""The chunk store against a dict of bytearrays, with reopening and power cuts in between."""

import contextlib

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fs3._native import ChunkStore, FakeMachine, NativeError

CHUNK_SIZE = 128 << 10
CAPACITY = 32 << 20

indexes = st.integers(0, 3)
offsets = st.one_of(st.integers(0, CHUNK_SIZE - 1), st.integers(0, 31).map(lambda g: g * 4096))
lengths = st.one_of(
    st.integers(1, 200), st.integers(1, 9000), st.sampled_from([4096, 8192, 65536, CHUNK_SIZE])
)
State = bytes | None


class ChunkStoreModel(RuleBasedStateMachine):
    """Per chunk: `states`, what each version since the last flush was (None: absent), and
    `strays`, those abandoned or not acknowledged since then, which a power cut may bring back."""

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.machine = FakeMachine(seed)
        self.store = self.open()
        self.sequence = 0
        self.states: dict[int, list[State]] = {index: [None] for index in range(4)}
        self.strays: dict[int, list[State]] = {index: [] for index in range(4)}

    def open(self) -> ChunkStore:
        return ChunkStore.open_fake(
            self.machine, capacity_bytes=CAPACITY, log_segment_bytes=1 << 20, record_cache_bytes=0
        )

    def version(self) -> tuple[int, int]:
        self.sequence += 1
        return (1, self.sequence)

    @rule(index=indexes, offset=offsets, length=lengths, fill=st.integers(1, 255))
    def write(self, index: int, offset: int, length: int, fill: int) -> None:
        length = min(length, CHUNK_SIZE - offset)
        data = bytes((fill + i // 512) % 256 for i in range(length))
        version = self.version()
        state = self.overwritten(index, offset, data)
        self.strays[index].append(state)
        self.store.write((1, index), version, offset, data, chunk_size=CHUNK_SIZE)
        self.store.commit((1, index), version)
        self.states[index].append(state)

    def overwritten(self, index: int, offset: int, data: bytes) -> bytes:
        state = bytearray(self.states[index][-1] or b"").ljust(offset, b"\0")
        state[offset : offset + len(data)] = data
        return bytes(state)

    @rule(index=indexes, length=st.integers(0, CHUNK_SIZE))
    def truncate(self, index: int, length: int) -> None:
        state = self.states[index][-1]
        if state is None:
            return
        version = self.version()
        self.store.truncate((1, index), version, length, chunk_size=CHUNK_SIZE)
        self.store.commit((1, index), version)
        self.states[index].append(state[:length])

    @rule(index=indexes, length=st.integers(0, CHUNK_SIZE))
    def extend(self, index: int, length: int) -> None:
        version = self.version()
        self.store.extend((1, index), version, length, chunk_size=CHUNK_SIZE)
        self.store.commit((1, index), version)
        self.states[index].append((self.states[index][-1] or b"").ljust(length, b"\0"))

    @rule(index=indexes)
    def remove(self, index: int) -> None:
        if self.states[index][-1] is None:
            return
        version = self.version()
        self.store.remove((1, index), version, chunk_size=CHUNK_SIZE)
        self.store.commit((1, index), version)
        self.states[index].append(None)

    @rule(index=indexes, fill=st.integers(0, 255))
    def abandon(self, index: int, fill: int) -> None:
        version = self.version()
        data = bytes([fill]) * 7000
        self.strays[index].append(self.overwritten(index, 1000, data))
        self.store.write((1, index), version, 1000, data, chunk_size=CHUNK_SIZE)
        self.store.abandon((1, index), version)

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self.flush_model()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.flush_model()
        self.store = self.open()

    @rule(operations=st.integers(0, 30), fill=st.integers(1, 255))
    def lose_power(self, operations: int, fill: int) -> None:
        self.machine.cut_power_after(operations)
        with contextlib.suppress(NativeError):
            for index in range(4):
                self.write(index, index * 5000, 6000, fill)
            self.flush()
        with contextlib.suppress(NativeError):
            self.store.close()
        self.machine.lose_power()
        self.store = self.open()
        for index, states in self.states.items():
            self.settle(index, states)

    def settle(self, index: int, states: list[State]) -> None:
        """Goes on from the newest version found, which must be one since the last flush."""
        try:
            info = self.store.stat((1, index))
        except NativeError:
            assert None in states
            self.states[index] = [None]
            return
        newest = (info["pending"] or [info["committed"]])[-1]
        self.store.commit((1, index), newest["version"])
        found = None if newest["tombstone"] else self.store.read((1, index), 0, CHUNK_SIZE)
        assert found in states or found in self.strays[index]
        self.states[index] = [found]

    def flush_model(self) -> None:
        self.states = {index: states[-1:] for index, states in self.states.items()}
        self.strays = {index: [] for index in self.states}

    @invariant()
    def chunks_read_back(self) -> None:
        if not hasattr(self, "store"):
            return
        for index, states in self.states.items():
            if states[-1] is None:
                continue
            assert self.store.read((1, index), 0, CHUNK_SIZE) == states[-1]


TestChunkStoreModel = ChunkStoreModel.TestCase
TestChunkStoreModel.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
