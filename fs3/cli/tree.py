"""fs3 tree"""

from typing import TYPE_CHECKING, Any

import click

from fs3.cli.output import json_option, print_json
from fs3.cli.settings import Settings, location_options

if TYPE_CHECKING:
    from fs3.client.filesystem import FileSystem


@click.command()
@click.argument("path", default="/")
@click.option("-L", "--level", type=click.IntRange(min=1), help="Descend only so deep.")
@json_option
@location_options
@click.pass_obj
def command(settings: Settings, path: str, level: int | None, as_json: bool) -> None:
    """Show a directory and everything below it.

    Without PATH, from the root.
    """
    with settings.filesystem() as fs:
        if as_json:
            print_json({"name": path, "type": "directory", "children": _nested(fs, path, level)})
            return
        click.echo(path)
        counts = _draw(fs, path, "", level)
    click.echo(f"\n{counts[0]} directories, {counts[1]} files")


def _draw(fs: "FileSystem", path: str, indent: str, level: int | None) -> tuple[int, int]:
    """Prints what is below `path`; how many directories and other entries that was."""
    directories = files = 0
    entries = list(fs.scandir(path))
    for entry in entries:
        is_last = entry is entries[-1]
        arrow = f" -> {entry.readlink()}" if entry.is_symlink() else ""
        click.echo(f"{indent}{'└── ' if is_last else '├── '}{entry.name}{arrow}")
        if not entry.is_dir(follow_symlinks=False):
            files += 1
            continue
        directories += 1
        if level != 1:
            below = indent + ("    " if is_last else "│   ")
            more = _draw(fs, entry.path, below, level and level - 1)
            directories, files = directories + more[0], files + more[1]
    return directories, files


def _nested(fs: "FileSystem", path: str, level: int | None) -> list[dict[str, Any]]:
    nodes = []
    for entry in fs.scandir(path):
        node: dict[str, Any] = {"name": entry.name, "type": "file"}
        if entry.is_symlink():
            node |= {"type": "link", "target": entry.readlink()}
        elif entry.is_dir():
            node["type"] = "directory"
            node["children"] = [] if level == 1 else _nested(fs, entry.path, level and level - 1)
        else:
            node["size"] = entry.stat().st_size
        nodes.append(node)
    return nodes
