"""fs3 rm"""

import click

from fs3.cli.settings import CannotRun, Settings, location_options


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("-r", "--recursive", is_flag=True, help="Directories with everything in them.")
@click.option("-f", "--force", is_flag=True, help="Say nothing about paths that are not there.")
@location_options
@click.pass_obj
def command(settings: Settings, paths: tuple[str, ...], recursive: bool, force: bool) -> None:
    """Remove files, or trees with -r.

    Paths are in fs3. There is no way back.
    """
    from fs3.client.path import relative

    if any(not relative(path).strip("/.") for path in paths):
        raise CannotRun("the root cannot be removed; name what is in it")
    with settings.filesystem() as fs:
        for path in paths:
            try:
                if recursive:
                    fs.remove_tree(path)
                else:
                    fs.remove(path)
            except FileNotFoundError:
                if not force:
                    raise
