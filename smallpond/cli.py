"""The command `smallpond`: run a script as a job, look at jobs and their logs."""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import sys
import time
import uuid

import click

from smallpond.io import files

_DEFAULT_ROOT = "~/.smallpond/data"


@dataclasses.dataclass(frozen=True)
class JobLine:
    """One job as its directory shows it.

    Attributes:
        state: `success`, `failure`, or `unfinished` for one that runs or was killed.
    """

    id: str
    started: str
    state: str
    path: str


def list_jobs(data_root: str) -> list[JobLine]:
    """The jobs below a data root, oldest first."""
    root = files.complete_path(data_root)
    place = files.files_for(root)
    found = []
    for name in place.list_names(root):
        started, _, job = name.partition(".")
        path = files.join(root, name)
        if job and place.is_directory(path):
            found.append(JobLine(job, started, _state(path), path))
    return found


def _state(path: str) -> str:
    status = files.join(path, "log", ".STATUS")
    try:
        with files.files_for(status).open_input(status) as file:
            text = bytes(file.read()).decode()
    except FileNotFoundError:
        return "unfinished"
    return text.splitlines()[-1].partition("@")[0]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fs3", prog_name="smallpond")
def main() -> None:
    """Data frames in partitions, computed by DuckDB and Arrow on many processes."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--data-root", help="Directory or URL for intermediate files and logs.")
@click.option("--job-id", help="Name of the job; random if not given.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def submit(
    data_root: str | None, job_id: str | None, script: str, arguments: tuple[str, ...]
) -> None:
    """Run SCRIPT with ARGUMENTS as a job and wait for it."""
    os.environ["SP_JOBID"] = job_id or str(uuid.uuid4())
    os.environ["SP_JOB_TIME"] = time.strftime("%Y-%m-%dT%H:%M:%S")
    if data_root is not None:
        os.environ["SP_DATA_ROOT"] = data_root
    click.echo(f"job {os.environ['SP_JOBID']}", err=True)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")


@main.group()
def jobs() -> None:
    """Look at jobs."""


@jobs.command("ls")
@click.option("--data-root", default=_DEFAULT_ROOT, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def list_command(data_root: str, as_json: bool) -> None:
    """List the jobs below a data root."""
    lines = list_jobs(data_root)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(line) for line in lines]))
        return
    for line in lines:
        click.echo(f"{line.started}  {line.state:<10}  {line.id}")


@jobs.command("logs")
@click.option("--data-root", default=_DEFAULT_ROOT, show_default=True)
@click.argument("job")
def logs_command(data_root: str, job: str) -> None:
    """Print what the functions of JOB wrote to their output, worker by worker."""
    matching = [line for line in list_jobs(data_root) if line.id.startswith(job)]
    if not matching:
        raise click.ClickException(f"no job {job} below {data_root}; see `smallpond jobs ls`")
    logs = files.join(matching[-1].path, "log")
    for name in files.files_for(logs).list_names(logs):
        if name.endswith(".log"):
            path = files.join(logs, name)
            with files.files_for(path).open_input(path) as file:
                click.echo(f"== {name}\n{bytes(file.read()).decode(errors='replace')}")
