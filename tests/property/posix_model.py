"""A POSIX tree in plain objects: what the namespace has to agree with.

Written from the standard and the Linux manual pages, with other means than the namespace itself:
nodes refer to each other, link counts are derived, paths are walked by recursion.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field

ROOT_UID = 0


class Refused(Exception):
    """The operation fails with this errno."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.number = number


@dataclass(eq=False)
class Node:
    uid: int
    mode: int
    entries: dict[str, "Node"] | None = None
    parent: "Node | None" = None
    target: str | None = None
    length: int = 0
    writers: int = 0

    @property
    def is_directory(self) -> bool:
        return self.entries is not None

    @property
    def children(self) -> dict[str, "Node"]:
        if self.entries is None:
            raise Refused(errno.ENOTDIR)
        return self.entries


@dataclass
class Found:
    directory: Node
    name: str
    node: Node | None
    slash: bool = False


@dataclass
class Model:
    root: Node = field(default_factory=lambda: Node(ROOT_UID, 0o777, {}))

    def __post_init__(self) -> None:
        self.root.parent = self.root

    # Resolution

    def find(self, uid: int, path: str, follow: bool) -> Found:
        found = self._walk(uid, self.root, path, follow, links=0)
        if found.slash and found.node is not None and not found.node.is_directory:
            raise Refused(errno.ENOTDIR)
        return found

    def existing(self, uid: int, path: str, follow: bool) -> Node:
        node = self.find(uid, path, follow).node
        if node is None:
            raise Refused(errno.ENOENT)
        return node

    def _walk(self, uid: int, start: Node, path: str, follow: bool, links: int) -> Found:
        """Follows `path` from `start`; a link on the way is walked first, as a path of its own."""
        here = self.root if path.startswith("/") else start
        names = [name for name in path.split("/") if name]
        slash = path.endswith("/")
        found = Found(here, "", here, slash)
        for index, name in enumerate(names):
            if found.node is None:
                raise Refused(errno.ENOENT)
            directory = found.node
            is_last = index == len(names) - 1
            found = self._enter(uid, directory, name)
            found.slash = slash and is_last
            node = found.node
            if node is not None and node.target is not None and (not is_last or follow or slash):
                if links == 40:
                    raise Refused(errno.ELOOP)
                links += 1
                found = self._walk(uid, directory, node.target, True, links)
                found.slash |= slash and is_last
                must_be_directory = not is_last or found.slash
                if must_be_directory and found.node is not None and not found.node.is_directory:
                    raise Refused(errno.ENOTDIR)
        return found

    def _enter(self, uid: int, directory: Node, name: str) -> Found:
        children = directory.children
        self.need(uid, directory, 0o1)
        if name == ".":
            return Found(directory, name, directory)
        if name == "..":
            return Found(directory, name, directory.parent)
        return Found(directory, name, children.get(name))

    # Permissions

    def need(self, uid: int, node: Node, bits: int) -> None:
        allowed = node.mode >> 6 if uid == node.uid else node.mode
        if uid != ROOT_UID and allowed & bits != bits:
            raise Refused(errno.EACCES)

    def need_take(self, uid: int, directory: Node, node: Node) -> None:
        self.need(uid, directory, 0o3)
        if directory.mode & 0o1000 and uid not in (ROOT_UID, directory.uid, node.uid):
            raise Refused(errno.EPERM)

    def need_room(self, uid: int, found: Found) -> None:
        if found.node is not None:
            raise Refused(errno.EEXIST)
        self.need(uid, found.directory, 0o3)

    # Operations

    def mkdir(self, uid: int, path: str, mode: int) -> None:
        found = self.find(uid, path, follow=False)
        self.need_room(uid, found)
        found.directory.children[found.name] = Node(uid, mode, {}, found.directory)

    def open(self, uid: int, path: str, *, create: bool, exclusive: bool, cut: bool) -> Node:
        """Opens for writing."""
        found = self.find(uid, path, follow=not exclusive)
        if found.node is None:
            if not create:
                raise Refused(errno.ENOENT)
            if found.slash:
                raise Refused(errno.EISDIR)
            self.need_room(uid, found)
            node = found.directory.children[found.name] = Node(uid, 0o644)
        else:
            node = found.node
            if exclusive:
                raise Refused(errno.EEXIST)
            if node.is_directory:
                raise Refused(errno.EISDIR)
            self.need(uid, node, 0o2)
            if cut:
                node.length = 0
        node.writers += 1
        return node

    def close(self, node: Node, length: int) -> None:
        node.length = max(node.length, length)
        node.writers -= 1

    def truncate(self, uid: int, path: str, length: int) -> None:
        node = self.existing(uid, path, follow=True)
        if node.is_directory:
            raise Refused(errno.EISDIR)
        self.need(uid, node, 0o2)
        node.length = length

    def symlink(self, uid: int, path: str, target: str) -> None:
        if not target:
            raise Refused(errno.ENOENT)
        found = self.find(uid, path, follow=False)
        self.need_room(uid, found)
        if found.slash:
            raise Refused(errno.ENOENT)
        found.directory.children[found.name] = Node(uid, 0o777, target=target, length=len(target))

    def link(self, uid: int, path: str, new: str) -> None:
        node = self.existing(uid, path, follow=False)
        found = self.find(uid, new, follow=False)
        if node.is_directory:
            raise Refused(errno.EPERM)
        self.need_room(uid, found)
        if found.slash:
            raise Refused(errno.ENOENT)
        found.directory.children[found.name] = node

    def rename(self, uid: int, path: str, new: str, *, noreplace: bool) -> None:
        source, target = self.find(uid, path, follow=False), self.find(uid, new, follow=False)
        if source.name in ("", ".", "..") or target.name in ("", ".", ".."):
            raise Refused(errno.EBUSY)
        moved = source.node
        if moved is None:
            raise Refused(errno.ENOENT)
        if target.node is not None and noreplace:
            raise Refused(errno.EEXIST)
        if target.slash and not moved.is_directory:
            raise Refused(errno.ENOTDIR)
        if target.node is moved:
            return
        self._check_rename(source, target, moved)
        self.need_take(uid, source.directory, moved)
        if target.node is None:
            self.need(uid, target.directory, 0o3)
        else:
            self.need_take(uid, target.directory, target.node)
        if moved.is_directory and source.directory is not target.directory:
            self.need(uid, moved, 0o2)
        if target.node is not None and target.node.entries:
            raise Refused(errno.ENOTEMPTY)
        del source.directory.children[source.name]
        target.directory.children[target.name] = moved
        if moved.is_directory:
            moved.parent = target.directory

    def _check_rename(self, source: Found, target: Found, moved: Node) -> None:
        if moved.is_directory and moved in self.lineage(target.directory):
            raise Refused(errno.EINVAL)
        if target.node is None:
            return
        if target.node.is_directory and target.node in self.lineage(source.directory):
            raise Refused(errno.ENOTEMPTY)
        if moved.is_directory and not target.node.is_directory:
            raise Refused(errno.ENOTDIR)
        if not moved.is_directory and target.node.is_directory:
            raise Refused(errno.EISDIR)

    def remove(self, uid: int, path: str, *, recursive: bool) -> None:
        found = self.find(uid, path, follow=False)
        special = {"": errno.EBUSY, ".": errno.EINVAL, "..": errno.ENOTEMPTY}
        if found.name in special:
            raise Refused(special[found.name])
        if found.node is None:
            raise Refused(errno.ENOENT)
        self.need_take(uid, found.directory, found.node)
        if found.node.entries:
            if not recursive:
                raise Refused(errno.ENOTEMPTY)
            self._need_below(uid, found.node)
        del found.directory.children[found.name]

    def _need_below(self, uid: int, top: Node) -> None:
        """What `rm -r` would need. Which of several hindrances is met first is not specified."""
        refusals = []
        for _, node in self.below(top, include_top=True):
            if node.entries:
                try:
                    self.need(uid, node, 0o7)
                    for child in node.entries.values():
                        self.need_take(uid, node, child)
                except Refused as refused:
                    refusals.append(refused)
        if refusals:
            raise refusals[0]

    def chmod(self, uid: int, path: str, mode: int) -> None:
        node = self.existing(uid, path, follow=True)
        if uid not in (ROOT_UID, node.uid):
            raise Refused(errno.EPERM)
        node.mode = mode

    def names(self, uid: int, path: str) -> list[str]:
        node = self.existing(uid, path, follow=True)
        children = node.children
        self.need(uid, node, 0o4)
        return sorted(children, key=str.encode)

    # Looking at everything

    def lineage(self, node: Node) -> list[Node]:
        """The directory and all above it."""
        above = [node]
        while (parent := above[-1].parent) is not None and parent is not above[-1]:
            above.append(parent)
        return above

    def below(self, top: Node, include_top: bool = False) -> Iterator[tuple[str, Node]]:
        """Every entry below, by path."""
        if include_top:
            yield "", top
        for name, child in sorted((top.entries or {}).items()):
            yield name, child
            for rest, node in self.below(child):
                yield f"{name}/{rest}", node

    def links(self, node: Node) -> int:
        if node.is_directory:
            return 2 + sum(child.is_directory for child in node.children.values())
        return sum(other is node for _, other in self.below(self.root))
