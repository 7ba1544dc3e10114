"""fs3 mkdir"""

import click

from fs3.cli.settings import Settings, location_options


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("-p", "--parents", is_flag=True, help="What is missing above as well.")
@location_options
@click.pass_obj
def command(settings: Settings, paths: tuple[str, ...], parents: bool) -> None:
    """Make directories.

    With -p an existing directory is no error.
    """
    with settings.filesystem() as fs:
        for path in paths:
            fs.mkdir(path, parents=parents, exist_ok=parents)
