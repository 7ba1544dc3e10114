"""What a node keeps on disk about itself, and how it refuses what is not its own."""

import errno
import os
from pathlib import Path

import pytest

from fs3.errors import Busy, Corrupt, InvalidArgument, NoSpace, PermissionDenied, VersionMismatch
from storage_node import directory
from storage_node.directory import NodeDirectory, open_disks, write_durably


def node_in(path: Path, node_id: int = 3) -> NodeDirectory:
    node = NodeDirectory(path)
    node.node.node_id, node.node.cluster_id = node_id, b"c" * 16
    node.save()
    return node


def test_identity_is_drawn_once(tmp_path: Path) -> None:
    first = NodeDirectory(tmp_path / "node")
    identity = first.node.identity
    first.close()
    assert NodeDirectory(tmp_path / "node").node.identity == identity
    assert len(identity) == 16


def test_one_process_per_directory(tmp_path: Path) -> None:
    first = NodeDirectory(tmp_path)
    with pytest.raises(Busy, match="already runs"):
        NodeDirectory(tmp_path)
    first.close()


def test_targets_keep_their_generations(tmp_path: Path) -> None:
    node = node_in(tmp_path / "node")
    (disk,) = open_disks([tmp_path / "disk"], node, 3)
    made = [(entry.index, entry.generation) for entry in disk.file.targets]
    assert len({generation for _, generation in made}) == 3
    disk.mark_formatted(disk.file.targets[:2])
    (again,) = open_disks([tmp_path / "disk"], node, 3)
    assert [(e.index, e.generation) for e in again.file.targets] == made
    assert [e.formatted for e in again.file.targets] == [True, True, False]
    assert again.target_id(again.file.targets[1]) == 3 << 32 | 0 << 16 | 1


def test_a_replaced_disk_gets_the_free_number_and_new_targets(tmp_path: Path) -> None:
    node = node_in(tmp_path / "node")
    paths = [tmp_path / "a", tmp_path / "b"]
    before = open_disks(paths, node, 1)
    (tmp_path / "a" / "disk.json").unlink()
    after = open_disks(paths, node, 1)
    assert [disk.file.disk for disk in after] == [0, 1]
    assert after[0].file.targets[0].generation != before[0].file.targets[0].generation
    assert after[1].file.targets[0].generation == before[1].file.targets[0].generation


def test_disks_keep_their_numbers_in_any_order(tmp_path: Path) -> None:
    node = node_in(tmp_path / "node")
    open_disks([tmp_path / "a", tmp_path / "b"], node, 1)
    swapped = open_disks([tmp_path / "b", tmp_path / "a"], node, 1)
    assert [disk.file.disk for disk in swapped] == [1, 0]


def test_a_disk_of_another_node_is_refused(tmp_path: Path) -> None:
    open_disks([tmp_path / "disk"], node_in(tmp_path / "one", 1), 1)
    with pytest.raises(InvalidArgument, match="is a disk of node 1"):
        open_disks([tmp_path / "disk"], node_in(tmp_path / "two", 2), 1)


def test_a_copied_disk_is_refused(tmp_path: Path) -> None:
    node = node_in(tmp_path / "node")
    open_disks([tmp_path / "a"], node, 1)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "disk.json").write_bytes((tmp_path / "a" / "disk.json").read_bytes())
    with pytest.raises(InvalidArgument, match="one is a copy"):
        open_disks([tmp_path / "a", tmp_path / "b"], node, 1)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"format": 1, "identity": 5}')
    with pytest.raises(Corrupt, match=r"node\.json is damaged"):
        NodeDirectory(tmp_path)


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"format": 2}')
    with pytest.raises(VersionMismatch, match="upgrade fs3"):
        NodeDirectory(tmp_path)


def test_an_unwritable_directory_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(PermissionDenied, match="choose another directory"):
        NodeDirectory(tmp_path)


def test_a_full_disk_is_no_space_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(directory.os, "fsync", full)
    with pytest.raises(NoSpace):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old"
