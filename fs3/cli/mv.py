"""fs3 mv"""

import posixpath

import click

from fs3.cli.settings import CannotRun, Settings, location_options


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("target")
@click.option("-n", "--no-clobber", is_flag=True, help="Refuse to replace an existing file.")
@location_options
@click.pass_obj
def command(settings: Settings, sources: tuple[str, ...], target: str, no_clobber: bool) -> None:
    """Rename or move, atomically.

    Paths are in fs3. When TARGET is a directory, sources are moved into it.
    """
    with settings.filesystem() as fs:
        into = fs.is_dir(target)
        if len(sources) > 1 and not into:
            raise CannotRun(f"{target}: not a directory, so only one source can be moved there")
        for source in sources:
            name = posixpath.basename(source.rstrip("/"))
            fs.rename(
                source, posixpath.join(target, name) if into else target, replace=not no_clobber
            )
