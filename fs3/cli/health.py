"""fs3 health"""

import click

from fs3.cli.cluster import ask
from fs3.cli.output import json_option, print_json
from fs3.cli.settings import Settings, location_options


@click.command()
@json_option
@location_options
@click.pass_obj
def command(settings: Settings, as_json: bool) -> int:
    """Say what is wrong, why, and what to do next.

    Exit code 0 when the cluster is healthy (warnings allowed), 1 when not, 2 when it cannot be
    reached.
    """
    _, health = ask(settings, lambda admin: admin.health())
    findings = [
        {
            "severity": finding.severity,
            "what": finding.what,
            "cause": finding.cause,
            "consequence": finding.consequence,
            "next": finding.next,
        }
        for finding in health.findings
    ]
    if as_json:
        print_json({"healthy": health.healthy, "findings": findings})
        return 0 if health.healthy else 1
    for finding in findings:
        click.echo(
            f"{finding['severity']}: {finding['what']}\n"
            f"  cause        {finding['cause']}\n"
            f"  consequence  {finding['consequence']}\n"
            f"  next         {finding['next']}\n"
        )
    click.echo("healthy" if health.healthy else "not healthy")
    return 0 if health.healthy else 1
