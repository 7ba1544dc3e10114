"""fs3 down"""

import click

from fs3.cli.cluster import run_local
from fs3.cli.settings import Settings, location_options


@click.command()
@location_options
@click.pass_obj
def command(settings: Settings) -> int:
    """Stop a local cluster; its data stays."""
    return run_local(settings, "down")
