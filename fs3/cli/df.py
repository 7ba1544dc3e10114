"""fs3 df"""

import click

from fs3.cli.output import json_option, print_json
from fs3.cli.settings import Settings, location_options


@click.command()
@json_option
@location_options
@click.pass_obj
def command(settings: Settings, as_json: bool) -> None:
    """Show the space of the cluster.

    What users can store: replicas are already divided out.
    """
    from fs3.units import format_bytes

    with settings.filesystem() as fs:
        space = fs.statfs()
        url = fs.url
    if as_json:
        print_json({"url": url, **space._asdict()})
        return
    share = 100 * space.used / space.total if space.total else 0.0
    click.echo(f"{'cluster':<28} {'total':>10} {'used':>10} {'free':>10} {'use':>5} {'files':>10}")
    click.echo(
        f"{url:<28} {format_bytes(space.total):>10} {format_bytes(space.used):>10} "
        f"{format_bytes(space.free):>10} {share:>4.0f}% {space.files:>10}"
    )
