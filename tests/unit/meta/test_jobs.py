"""Background jobs: chunks of removed and cut files go, sessions of dead clients end."""

import os
import threading

import pytest

from fs3.config.metadata import JobsConfig
from fs3.errors import NotFound, StaleHandle, Unavailable
from fs3.ids import ROOT_INODE
from fs3.wire import keys
from fs3.wire.keys import GarbageKind
from fs3.wire.metadata import StatFs, Truncate
from meta_service.jobs.cuts import Cuts
from meta_service.jobs.garbage import Garbage
from meta_service.jobs.replays import Replays
from meta_service.jobs.sessions import Sessions
from meta_service.jobs.worker import Worker
from tests.fake_chunks import FakeChunks
from tests.meta_world import SECOND, World

CONFIG = JobsConfig(page=4, sessions_grace_s=5.0)
CREATE = os.O_CREAT | os.O_WRONLY


@pytest.fixture
def chunks() -> FakeChunks:
    return FakeChunks()


def collect(world: World, chunks: FakeChunks, steps: int = 1000) -> None:
    """Until nothing is left that is due."""
    garbage = Garbage(world.engine, chunks, world.inputs, CONFIG)
    for _ in range(steps):
        if garbage.step() == CONFIG.poll_s:
            return
    raise AssertionError(f"garbage is left after {steps} steps")


def left(world: World) -> int:
    return len(world.pairs(*keys.prefix_range(keys.GARBAGE)))


def written(world: World, chunks: FakeChunks, path: str, length: int) -> None:
    inode = world.create(path, length=length)
    chunks.write(inode.id, length)


def test_chunks_of_removed_files_go(world: World, chunks: FakeChunks) -> None:
    for n in range(10):
        written(world, chunks, f"f{n}", 100)
    for n in range(9):
        world.remove(f"f{n}")
    collect(world, chunks)
    assert chunks.stored_bytes() == 100
    assert left(world) == 0


def test_a_late_write_to_a_removed_file_is_refused(world: World, chunks: FakeChunks) -> None:
    inode = world.create("f", length=1)
    world.remove("f")
    collect(world, chunks)
    with pytest.raises(StaleHandle):
        chunks.write(inode.id, 100, inode.truncate_version)


def test_chunks_that_cannot_be_reached_are_tried_again_later(
    world: World, chunks: FakeChunks
) -> None:
    written(world, chunks, "f", 100)
    world.remove("f")
    chunks.is_down = True
    garbage = Garbage(world.engine, chunks, world.inputs, CONFIG)
    for attempt in range(3):
        garbage.step()
        assert left(world) == 1
        assert garbage.step() == CONFIG.poll_s, "not due yet"
        world.now_ns += int(CONFIG.retry_pause_min_s * 2**attempt * SECOND)
    chunks.is_down = False
    garbage.step()
    assert (left(world), chunks.stored_bytes()) == (0, 0)


def test_a_removed_tree_is_taken_apart(world: World, chunks: FakeChunks) -> None:
    world.mkdir("top")
    for n in range(7):
        world.mkdir(f"top/d{n}")
        world.mkdir(f"top/d{n}/e")
        for m in range(6):
            written(world, chunks, f"top/d{n}/e/f{m}", 10)
        world.symlink(f"top/d{n}/link", "x")
    written(world, chunks, "kept", 10)
    world.link("top/d0/e/f0", "also")
    world.remove("top", recursive=True)
    collect(world, chunks)
    assert left(world) == 0
    assert chunks.stored_bytes() == 20
    assert world.names("/") == ["also", "kept"]
    assert world.stat("also").nlink == 1
    assert len(world.pairs(*keys.prefix_range(keys.INODE))) == 3
    assert len(world.pairs(*keys.prefix_range(keys.ENTRY))) == 2
    assert world.call(StatFs()).inodes == 3


def test_work_of_the_same_moment_is_done_whatever_its_order(
    world: World, chunks: FakeChunks
) -> None:
    world.mkdir("older")
    world.mkdir("newer")
    world.create("older/f")
    world.rename("older", "newer/older")
    world.remove("newer", recursive=True)
    collect(world, chunks)
    assert (left(world), world.call(StatFs()).inodes) == (0, 1)


def test_a_file_open_for_writing_outlives_its_tree(world: World, chunks: FakeChunks) -> None:
    world.mkdir("top")
    opened = world.open("top/f", CREATE)
    world.remove("top", recursive=True)
    collect(world, chunks)
    chunks.write(opened.inode.id, 5)
    assert world.find(opened.inode.id) is not None
    world.close(opened, length=5)
    collect(world, chunks)
    assert world.find(opened.inode.id) is None
    assert chunks.stored_bytes() == 0


def test_garbage_survives_a_new_process(world: World, chunks: FakeChunks) -> None:
    world.mkdir("top")
    for n in range(20):
        written(world, chunks, f"top/f{n}", 1)
    world.remove("top", recursive=True)
    while left(world):
        Garbage(world.engine, chunks, world.inputs, CONFIG).step()
    assert chunks.stored_bytes() == 0


def test_a_cut_reaches_the_chunks_and_leaves_the_inode(world: World, chunks: FakeChunks) -> None:
    written(world, chunks, "f", 1000)
    inode = world.call(Truncate(ROOT_INODE, "f", 10))
    cuts = Cuts(world.engine, chunks, world.inputs, CONFIG)
    chunks.is_down = True
    cuts.step()
    assert world.stat("f").pending_cut == 10
    chunks.is_down = False
    world.now_ns += SECOND
    cuts.step()
    assert world.stat("f").pending_cut is None
    assert chunks.files[inode.id] == (10, 1)
    assert left(world) == 0
    assert cuts.step() == CONFIG.poll_s


def test_a_cut_that_was_overtaken_is_left_to_the_later_one(
    world: World, chunks: FakeChunks
) -> None:
    written(world, chunks, "f", 1000)
    for length in (500, 20):
        world.call(Truncate(ROOT_INODE, "f", length))
    cuts = Cuts(world.engine, chunks, world.inputs, CONFIG)
    cuts.step()
    assert chunks.calls == ["cut"]
    assert chunks.files[world.stat("f").id] == (20, 2)
    assert (world.stat("f").pending_cut, left(world)) == (None, 0)


def test_a_cut_of_a_file_removed_meanwhile(world: World, chunks: FakeChunks) -> None:
    written(world, chunks, "f", 1000)
    world.call(Truncate(ROOT_INODE, "f", 10))
    world.remove("f")
    Cuts(world.engine, chunks, world.inputs, CONFIG).step()
    assert chunks.calls == []
    collect(world, chunks)
    assert chunks.stored_bytes() == 0


def test_after_the_cut_a_longer_one_is_possible(world: World, chunks: FakeChunks) -> None:
    written(world, chunks, "f", 1000)
    world.call(Truncate(ROOT_INODE, "f", 10))
    Cuts(world.engine, chunks, world.inputs, CONFIG).step()
    assert world.call(Truncate(ROOT_INODE, "f", 500)).length == 500


class Clients:
    """Which clients are dead, and a monotonic clock."""

    def __init__(self) -> None:
        self.dead: set[int] = set()
        self.now_s = 0.0

    def job(self, world: World, chunks: FakeChunks) -> Sessions:
        return Sessions(
            world.engine,
            chunks,
            world.inputs,
            CONFIG,
            is_dead=lambda client: client in self.dead,
            monotonic_s=lambda: self.now_s,
        )


def sessions(world: World) -> int:
    return len(world.pairs(*keys.prefix_range(keys.SESSION)))


def test_a_dead_clients_sessions_end_with_what_it_wrote(world: World, chunks: FakeChunks) -> None:
    clients = Clients()
    job = clients.job(world, chunks)
    files = [world.open(f"f{n}", CREATE, client=1).inode for n in range(6)]
    chunks.write(files[0].id, 777)
    alive = world.open("f0", CREATE, client=2)
    clients.dead = {1}
    job.step()
    clients.now_s += CONFIG.sessions_grace_s - 1
    job.step()
    assert sessions(world) == 7, "not before the grace is over"
    clients.now_s += 1
    job.step()
    assert sessions(world) == 1
    assert world.stat("f0").length == 777
    world.close(alive, length=1, client=2)
    assert world.stat("f0").length == 777


def test_a_sign_of_life_starts_the_count_anew(world: World, chunks: FakeChunks) -> None:
    clients = Clients()
    job = clients.job(world, chunks)
    opened = world.open("f", CREATE)
    for _ in range(5):
        clients.dead = {1}
        job.step()
        clients.now_s += CONFIG.sessions_grace_s - 1
        clients.dead = set()
        job.step()
        clients.now_s += CONFIG.sessions_grace_s - 1
    world.close(opened)


def test_a_dead_clients_unlinked_file_goes(world: World, chunks: FakeChunks) -> None:
    clients = Clients()
    job = clients.job(world, chunks)
    opened = world.open("f", CREATE)
    chunks.write(opened.inode.id, 10)
    world.remove("f")
    clients.dead = {1}
    job.step()
    clients.now_s += CONFIG.sessions_grace_s
    job.step()
    assert (sessions(world), world.find(opened.inode.id)) == (0, None)
    collect(world, chunks)
    assert chunks.stored_bytes() == 0


def test_a_session_waits_while_its_chunks_cannot_be_asked_or_are_being_cut(
    world: World, chunks: FakeChunks
) -> None:
    clients = Clients()
    job = clients.job(world, chunks)
    opened = world.open("f", CREATE)
    chunks.write(opened.inode.id, 1000)
    world.call(Truncate(opened.inode.id, "", 10), client=2)
    clients.dead = {1}
    job.step()
    clients.now_s += CONFIG.sessions_grace_s
    job.step()
    assert sessions(world) == 1
    Cuts(world.engine, chunks, world.inputs, CONFIG).step()
    chunks.is_down = True
    job.step()
    assert sessions(world) == 1
    chunks.is_down = False
    job.step()
    assert sessions(world) == 0
    assert world.stat("f").length == 10


def test_results_for_retries_expire(world: World) -> None:
    job = Replays(world.engine, lambda: world.now_ns, CONFIG)
    for n in range(10):
        world.mkdir(f"old{n}")
    world.now_ns += int(CONFIG.replays_expire_s * SECOND)
    world.mkdir("new", who=(0, 0))
    while job.step() == CONFIG.poll_s:
        pass
    assert len(world.pairs(*keys.prefix_range(keys.REPLAY))) == 1
    world.now_ns += int(CONFIG.replays_expire_s * SECOND) + 1
    while job.step() == CONFIG.poll_s:
        pass
    assert world.pairs(*keys.prefix_range(keys.REPLAY)) == []


def test_worker_steps_pauses_and_survives_errors(caplog: pytest.LogCaptureFixture) -> None:
    steps = 0
    enough = threading.Event()

    def step() -> float:
        nonlocal steps
        steps += 1
        if steps == 1:
            raise Unavailable("first")
        if steps == 2:
            raise ZeroDivisionError
        if steps < 5:
            return 0.0
        enough.set()
        return 3600.0

    worker = Worker("test-job", step, pause_after_error_s=0.001)
    worker.start()
    assert enough.wait(5)
    enough.clear()
    worker.kick()
    assert enough.wait(5), "a kick ends the pause"
    worker.stop()
    assert "test-job: first" in caplog.text
    assert "defect in job test-job" in caplog.text


def test_queues_look_back_now_and_then(world: World, chunks: FakeChunks) -> None:
    """Work may be due before what was done last, when the clock is set back."""
    garbage = Garbage(world.engine, chunks, world.inputs, CONFIG)
    world.create("f")
    world.create("g")
    world.remove("f")
    garbage.step()
    world.now_ns -= 1000 * SECOND
    world.remove("g")
    world.now_ns += 1000 * SECOND
    for _ in range(300):
        garbage.step()
    assert left(world) == 0
    with pytest.raises(NotFound):
        world.stat("g")
    assert world.pairs(*keys.garbage_due(GarbageKind.FILE, 0, world.now_ns)) == []
