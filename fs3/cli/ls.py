"""fs3 ls"""

import stat
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fs3.cli.output import json_option, print_json
from fs3.cli.settings import Settings, location_options

if TYPE_CHECKING:
    from fs3.client.entry import DirEntry
    from fs3.client.filesystem import FileSystem


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("-l", "--long", "is_long", is_flag=True, help="Mode, owner, size and time as well.")
@click.option("-R", "--recursive", is_flag=True, help="Everything below as well.")
@json_option
@location_options
@click.pass_obj
def command(
    settings: Settings, paths: tuple[str, ...], is_long: bool, recursive: bool, as_json: bool
) -> None:
    """List a directory.

    Without PATH, the root. A path of a file lists that file.
    """
    with settings.filesystem() as fs:
        rows = (row for path in paths or ("/",) for row in _rows(fs, path, recursive))
        if as_json:
            print_json(list(rows))
            return
        for row in rows:
            click.echo(_long(row) if is_long else row["name"])


def _rows(fs: "FileSystem", path: str, recursive: bool) -> Iterator[dict[str, Any]]:
    try:
        entries: Iterable[DirEntry] = fs.scandir(path)
        for entry in entries:
            row = _row(entry)
            if recursive:
                row["name"] = entry.path
            yield row
            if recursive and entry.is_dir(follow_symlinks=False):
                yield from _rows(fs, entry.path, recursive)
    except NotADirectoryError:
        attributes = fs.stat(path)
        yield _describe(path, path, attributes.st_mode, attributes, "")


def _row(entry: "DirEntry") -> dict[str, Any]:
    attributes = entry.stat(follow_symlinks=False)
    return _describe(entry.name, entry.path, attributes.st_mode, attributes, entry.readlink())


def _describe(name: str, path: str, mode: int, attributes: Any, target: str) -> dict[str, Any]:
    return {
        "name": name,
        "path": path,
        "type": _TYPES.get(stat.S_IFMT(mode), "file"),
        "mode": stat.filemode(mode),
        "links": attributes.st_nlink,
        "uid": attributes.st_uid,
        "gid": attributes.st_gid,
        "size": attributes.st_size,
        "mtime": attributes.st_mtime,
        "target": target,
    }


def _long(row: dict[str, Any]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["mtime"]))
    arrow = f" -> {row['target']}" if row["target"] else ""
    return (
        f"{row['mode']} {row['links']:>3} {row['uid']:>5} {row['gid']:>5} "
        f"{row['size']:>13} {when} {row['name']}{arrow}"
    )


_TYPES = {stat.S_IFDIR: "directory", stat.S_IFLNK: "link", stat.S_IFREG: "file"}
