"""fs3 up"""

import click

from fs3.cli.cluster import run_local
from fs3.cli.output import json_option
from fs3.cli.settings import CannotRun, Settings, location_options


@click.command()
@click.option("--nodes", type=click.IntRange(1), help="Storage nodes of a new cluster.  [3]")
@click.option("--replicas", type=click.IntRange(1), help="Copies of each chunk.  [2]")
@click.option("--chains", type=click.IntRange(1), help="Chains of a new cluster.  [4 per node]")
@click.option("--port", type=click.IntRange(1, 65535), help="Of the cluster's URL.  [any free one]")
@json_option
@location_options
@click.pass_obj
def command(
    settings: Settings,
    nodes: int | None,
    replicas: int | None,
    chains: int | None,
    port: int | None,
    as_json: bool,
) -> int:
    """Start a local cluster and wait until it is healthy.

    A cluster that runs already is left as it is; a stopped one is started again with its data, on
    the same ports where they are free.
    """
    if settings.url is not None:
        raise CannotRun(
            f"{settings.url} names a cluster that runs; `fs3 up` starts a local one, named by --dir"
        )
    given = {"--nodes": nodes, "--replicas": replicas, "--chains": chains, "--port": port}
    arguments = [text for name, n in given.items() if n is not None for text in (name, str(n))]
    return run_local(settings, "up", *arguments, *(["--json"] if as_json else []))
