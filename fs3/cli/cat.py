"""fs3 cat"""

import sys

import click

from fs3.cli.settings import Settings, location_options


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@location_options
@click.pass_obj
def command(settings: Settings, paths: tuple[str, ...]) -> None:
    """Write files to standard output.

    Paths are in fs3: `fs3 cat /notes.txt`.
    """
    from fs3.client.transfer import pump

    output = sys.stdout.buffer
    with settings.filesystem() as fs:
        for path in paths:
            with fs.open(path, "rb") as file:
                pump(file, output, lambda _: None)
        output.flush()
