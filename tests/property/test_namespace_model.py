"""Random operations of two callers on the namespace and on a model of a POSIX tree.

Each step may be sent twice, as a retry after a lost reply is: the copy must get the same answer and
change nothing. Jobs run in between and must never be noticed. On the embedded engine the store is
closed and opened again now and then.
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from fs3.config.metadata import JobsConfig
from fs3.errors import Fs3Error
from fs3.ids import ROOT_INODE
from fs3.model.inode import Inode, Kind
from fs3.wire import keys, records
from fs3.wire import metadata as wire
from meta_service.jobs.cuts import Cuts
from meta_service.jobs.garbage import Garbage
from meta_service.kv.memory import MemoryEngine
from meta_service.kv.rocksdb import RocksDbEngine
from meta_service.namespace.batch import Call
from tests.fake_chunks import FakeChunks
from tests.meta_world import World, decoded
from tests.property.posix_model import Model, Node, Refused

NAMES = st.sampled_from(["a", "b", "c", "é"])
ODD = st.builds(
    lambda parts, slash: "/".join(parts) + slash,
    st.lists(st.one_of(NAMES, NAMES, st.sampled_from([".", ".."])), min_size=1, max_size=4),
    st.sampled_from(["", "/"]),
)
THERE = st.runner().flatmap(lambda machine: st.sampled_from(machine.paths()))
FREE = st.builds(
    lambda directory, name: f"{directory}/{name}",
    st.runner().flatmap(lambda machine: st.sampled_from(machine.directories())),
    NAMES,
)
FILES = st.runner().flatmap(lambda machine: st.sampled_from(machine.files()))
PATHS = st.one_of(THERE, THERE, FREE, ODD)
NEW_PATHS = st.one_of(FREE, FREE, THERE, ODD)
TARGETS = st.one_of(PATHS, ODD.map(lambda path: "/" + path))
MODES = st.sampled_from(
    [0o777, 0o1777, 0o777, 0o1777, 0o755, 0o700, 0o555, 0o711, 0o744, 0o666, 0o000]
)
UIDS = st.sampled_from([0, 0, 1000, 1000, 1001])
CLIENTS = {0: 1, 1000: 2, 1001: 2}
LENGTHS = st.integers(0, 1 << 40)

CONFIG = JobsConfig(page=3)


class Writer(NamedTuple):
    opened: wire.Opened
    node: Node
    uid: int


def outcome(model: Callable[[], Any]) -> Any:
    """What the model returns, or how it refuses."""
    try:
        return model()
    except Refused as refused:
        return refused


class Namespace(RuleBasedStateMachine):
    writers = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.world = self.make_world()
        self.model = Model()
        self.chunks = FakeChunks()

    def make_world(self) -> World:
        return World(MemoryEngine())

    def paths(self) -> list[str]:
        """Of everything that is there, or of the root alone."""
        return [path for path, _ in self.model.below(self.model.root)] or [""]

    def files(self) -> list[str]:
        below = self.model.below(self.model.root)
        return [path for path, node in below if not node.is_directory] or [""]

    def directories(self) -> list[str]:
        below = self.model.below(self.model.root)
        return ["", *(path for path, node in below if node.is_directory)]

    # Sending

    def send(self, uid: int, request: wire.Request, retried: bool) -> Any:
        """The reply, or the errno with which the request was refused."""
        call = Call(self.world.caller((uid, uid), client=CLIENTS[uid]), request)
        [reply] = self.world.batch([call])
        if retried:
            assert self.world.batch([call]) == [reply]
        try:
            return decoded(request, reply)
        except Fs3Error as error:
            return error.errno

    def both(
        self, uid: int, request: wire.Request, retried: bool, model: Callable[[], Any]
    ) -> tuple[Any, Any]:
        """The answers of the namespace and of the model to a change; both succeed or neither."""
        answer = self.send(uid, request, retried)
        expected = outcome(model)
        if isinstance(answer, int) or isinstance(expected, Refused):
            refusal = expected.number if isinstance(expected, Refused) else None
            assert answer == refusal, (request, uid)
            return None, None
        return answer, expected

    # Changes

    @initialize(owners=st.lists(UIDS, min_size=3, max_size=3), mode=MODES)
    def plant(self, owners: list[int], mode: int) -> None:
        """Something to begin with, so that not every path leads nowhere."""
        for uid, path in zip(owners, ("a", "b", "a/a"), strict=True):
            self.mkdir(uid, path, 0o777 if path == "a" else mode, False)

    @rule(uid=UIDS, path=NEW_PATHS, mode=MODES, retried=st.booleans())
    def mkdir(self, uid: int, path: str, mode: int, retried: bool) -> None:
        request = wire.Mkdir(ROOT_INODE, path, mode)
        self.both(uid, request, retried, lambda: self.model.mkdir(uid, path, mode))

    @rule(
        target=writers,
        uid=UIDS,
        path=st.one_of(PATHS, NEW_PATHS),
        how=st.sampled_from(["create", "cut", "exclusive", "open"]),
        retried=st.booleans(),
    )
    def open(self, uid: int, path: str, how: str, retried: bool) -> Any:
        flags = (
            os.O_WRONLY
            | {
                "open": 0,
                "create": os.O_CREAT,
                "exclusive": os.O_CREAT | os.O_EXCL,
                "cut": os.O_CREAT | os.O_TRUNC,
            }[how]
        )
        self.run_cuts()
        opened, node = self.both(
            uid,
            wire.Open(ROOT_INODE, path, flags),
            retried,
            lambda: self.model.open(
                uid,
                path,
                create=how != "open",
                exclusive=how == "exclusive",
                cut=how == "cut",
            ),
        )
        return multiple() if opened is None else Writer(opened, node, uid)

    @rule(uid=UIDS, path=NEW_PATHS, length=LENGTHS)
    def write_file(self, uid: int, path: str, length: int) -> None:
        writer = self.open(uid, path, "create", False)
        if isinstance(writer, Writer):
            self.close(writer, length, False)

    @rule(writer=consumes(writers), length=LENGTHS, retried=st.booleans())
    def close(self, writer: Writer, length: int, retried: bool) -> None:
        """With the truncate version as it is now, as a client has it that writes after a cut."""
        inode = self.world.find(writer.opened.inode.id)
        assert inode is not None
        request = wire.Close(inode.id, writer.opened.session, length, inode.truncate_version)
        self.both(writer.uid, request, retried, lambda: self.model.close(writer.node, length))

    @rule(writer=consumes(writers), retried=st.booleans())
    def close_without_writing(self, writer: Writer, retried: bool) -> None:
        request = wire.Close(writer.opened.inode.id, writer.opened.session)
        self.both(writer.uid, request, retried, lambda: self.model.close(writer.node, 0))

    @rule(uid=UIDS, path=st.one_of(FILES, PATHS), length=LENGTHS, retried=st.booleans())
    def truncate(self, uid: int, path: str, length: int, retried: bool) -> None:
        self.run_cuts()
        request = wire.Truncate(ROOT_INODE, path, length)
        self.both(uid, request, retried, lambda: self.model.truncate(uid, path, length))

    @rule(uid=UIDS, path=NEW_PATHS, to=TARGETS, retried=st.booleans())
    def symlink(self, uid: int, path: str, to: str, retried: bool) -> None:
        request = wire.Symlink(ROOT_INODE, path, to)
        self.both(uid, request, retried, lambda: self.model.symlink(uid, path, to))

    @rule(uid=UIDS, path=st.one_of(FILES, FILES, PATHS), new=NEW_PATHS, retried=st.booleans())
    def link(self, uid: int, path: str, new: str, retried: bool) -> None:
        request = wire.Link(ROOT_INODE, path, ROOT_INODE, new)
        self.both(uid, request, retried, lambda: self.model.link(uid, path, new))

    @rule(uid=UIDS, path=PATHS, new=NEW_PATHS, noreplace=st.booleans(), retried=st.booleans())
    def rename(self, uid: int, path: str, new: str, noreplace: bool, retried: bool) -> None:
        request = wire.Rename(ROOT_INODE, path, ROOT_INODE, new, int(noreplace))
        self.both(
            uid, request, retried, lambda: self.model.rename(uid, path, new, noreplace=noreplace)
        )

    @rule(uid=UIDS, path=PATHS, recursive=st.booleans(), retried=st.booleans())
    def remove(self, uid: int, path: str, recursive: bool, retried: bool) -> None:
        request = wire.Remove(ROOT_INODE, path, recursive=recursive)
        self.both(uid, request, retried, lambda: self.model.remove(uid, path, recursive=recursive))
        if recursive:  # until then, files with another name elsewhere have one link too many
            self.collect_all_garbage()

    @rule(uid=UIDS, path=PATHS, mode=MODES, retried=st.booleans())
    def chmod(self, uid: int, path: str, mode: int, retried: bool) -> None:
        request = wire.SetAttributes(ROOT_INODE, path, mode=mode)
        self.both(uid, request, retried, lambda: self.model.chmod(uid, path, mode))

    # Reading

    @rule(uid=UIDS, path=PATHS, follow=st.booleans())
    def stat(self, uid: int, path: str, follow: bool) -> None:
        request = wire.Stat(ROOT_INODE, path, follow)
        inode, node = self.both(uid, request, False, lambda: self.model.existing(uid, path, follow))
        if inode is not None:
            self.same(inode, node)

    @rule(uid=UIDS, path=PATHS)
    def list_entries(self, uid: int, path: str) -> None:
        listing, names = self.both(
            uid, wire.List(ROOT_INODE, path), False, lambda: self.model.names(uid, path)
        )
        if listing is not None:
            assert [entry.name for entry in listing.entries] == names

    # What happens in between

    @rule()
    def collect_garbage(self) -> None:
        Garbage(self.world.engine, self.chunks, self.world.inputs, CONFIG).step()

    def collect_all_garbage(self) -> None:
        garbage = Garbage(self.world.engine, self.chunks, self.world.inputs, CONFIG)
        while garbage.step() != CONFIG.poll_s:
            pass

    @rule()
    def run_cuts(self) -> None:
        cuts = Cuts(self.world.engine, self.chunks, self.world.inputs, CONFIG)
        while cuts.step() == 0.0:
            pass

    # What always holds

    def same(self, inode: Inode, node: Node) -> None:
        kind = (
            Kind.DIRECTORY
            if node.is_directory
            else Kind.FILE
            if node.target is None
            else Kind.SYMLINK
        )
        length = len(node.target.encode()) if node.target is not None else node.length
        found = (inode.kind, inode.mode, inode.uid, inode.nlink, inode.length, inode.target)
        assert found == (
            kind,
            node.mode,
            node.uid,
            self.model.links(node),
            length,
            node.target or "",
        )

    @invariant()
    def everything_is_the_same(self) -> None:
        found: dict[str, Inode] = {"": self.world.stat("/")}
        pending = [""]
        while pending:
            prefix = pending.pop()
            for entry in self.world.call(wire.List(ROOT_INODE, prefix or "/")).entries:
                path = f"{prefix}/{entry.name}"
                found[path] = entry.inode
                assert entry.kind is entry.inode.kind
                if entry.kind is Kind.DIRECTORY:
                    pending.append(path)
        expected = {f"/{path}": node for path, node in self.model.below(self.model.root)}
        expected[""] = self.model.root
        assert sorted(found) == sorted(expected)
        for path, inode in found.items():
            self.same(inode, expected[path])

    @invariant()
    def the_store_is_consistent(self) -> None:
        inodes = {
            records.INODE.decode(value).id: records.INODE.decode(value)
            for _, value in self.world.pairs(*keys.prefix_range(keys.INODE))
        }
        for _, value in self.world.pairs(*keys.prefix_range(keys.ENTRY)):
            assert records.ENTRY.decode(value).id in inodes, "an entry names what is not there"
        held = {
            keys.parse_session(key)[0] for key, _ in self.world.pairs(*keys.prefix_range(b"SESS"))
        }
        assert held <= set(inodes), "a session of nothing"
        for inode in inodes.values():
            if inode.nlink == 0 and inode.kind is not Kind.DIRECTORY:
                assert inode.id in held, "neither a name nor a writer, and still there"
        assert self.world.call(wire.StatFs()).inodes == len(inodes)

    def teardown(self) -> None:
        """When all is removed and collected, nothing but the root is left."""
        for name in list(self.model.root.children):
            self.world.remove(name, recursive=True)
        self.collect_all_garbage()
        left = len(self.world.pairs(*keys.prefix_range(keys.INODE)))
        held = {
            keys.parse_session(key)[0] for key, _ in self.world.pairs(*keys.prefix_range(b"SESS"))
        }
        assert left == 1 + len(held)
        assert self.world.pairs(*keys.prefix_range(keys.ENTRY)) == []


class NamespaceOnDisk(Namespace):
    def make_world(self) -> World:
        self.directory = tempfile.TemporaryDirectory()
        return World(RocksDbEngine(self.directory.name, cached_keys_max=40))

    @rule()
    def reopen(self) -> None:
        self.world.engine.close()
        self.world.engine = RocksDbEngine(self.directory.name, cached_keys_max=40)
        self.world.numbers = type(self.world.numbers)(self.world.engine)

    def teardown(self) -> None:
        super().teardown()
        self.world.engine.close()
        self.directory.cleanup()


TestMemory = Namespace.TestCase
TestMemory.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestRocksDb = NamespaceOnDisk.TestCase
TestRocksDb.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
