"""fs3 stat"""

import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from fs3.cli.output import json_option, print_json
from fs3.cli.settings import Settings, location_options

if TYPE_CHECKING:
    from fs3.client.filesystem import FileSystem


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@json_option
@location_options
@click.pass_obj
def command(settings: Settings, paths: tuple[str, ...], as_json: bool) -> None:
    """Show everything known about a path.

    A symbolic link itself, not what it leads to.
    """
    with settings.filesystem() as fs:
        facts = [_facts(fs, path) for path in paths]
    if as_json:
        print_json(facts)
        return
    for fact in facts:
        click.echo("\n".join(f"{name:>10}: {value}" for name, value in fact.items()))


def _facts(fs: "FileSystem", path: str) -> dict[str, Any]:
    attributes = fs.lstat(path)
    mode = attributes.st_mode
    facts: dict[str, Any] = {
        "path": path,
        "type": _TYPES[stat.S_IFMT(mode)],
        "size": attributes.st_size,
        "mode": f"{stat.S_IMODE(mode):04o} {stat.filemode(mode)}",
        "uid": attributes.st_uid,
        "gid": attributes.st_gid,
        "links": attributes.st_nlink,
        "inode": attributes.st_ino,
        "modified": datetime.fromtimestamp(attributes.st_mtime, UTC).isoformat(),
        "changed": datetime.fromtimestamp(attributes.st_ctime, UTC).isoformat(),
    }
    if stat.S_ISLNK(mode):
        return facts | {"target": fs.readlink(path)}
    layout = fs.layout(path)
    return facts | {"chunk_size": layout.chunk_size, "stripe": layout.stripe}


_TYPES = {stat.S_IFDIR: "directory", stat.S_IFLNK: "link", stat.S_IFREG: "file"}
