"""The command `trainer-io`.

Exit codes: 0 done, 1 an error or a regression, 2 wrong arguments or an unreadable trace.
"""

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Final

import click

from fs3.units import format_bytes

if TYPE_CHECKING:
    from trainer_io.dataset.info import FilesInfo, ParquetInfo
    from trainer_io.moe.profile import Trace

EXTENSIONS_SHOWN: Final = 8


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`trainer-io GROUP COMMAND --help` explains a command.",
)
@click.version_option(package_name="fs3", prog_name="trainer-io")
def command() -> None:
    """Training data on fs3 or on the local disk, and GPU traces of training steps."""


@command.group()
def dataset() -> None:
    """Look at data sets."""


@dataset.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON value on stdout.")
def info(path: str, as_json: bool) -> None:
    """Show what the data set at PATH consists of.

    PATH is a local directory or file, fs3:///data in the configured cluster (FS3_URL, FS3_DIR, else
    the local one), or fs3://host:port/data in any other.

    Reads names, sizes and parquet footers, no data.
    """
    from trainer_io.dataset.info import ParquetInfo, dataset_info

    found = dataset_info(path)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found)))
    elif isinstance(found, ParquetInfo):
        _show_parquet(found)
    else:
        _show_files(found)


@command.group()
def trace() -> None:
    """Analyse GPU traces (torch.profiler's Chrome traces, plain or gzip)."""


@trace.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="One JSON value on stdout.")
def report(file: str, as_json: bool) -> None:
    """Show busy time, communication hidden and exposed, waiting, gaps and kernels of FILE."""
    from trainer_io.moe.profile import analyse_overlap, longest_gaps, sm_split
    from trainer_io.moe.profile.text import report_lines

    found = _read_trace(file)
    overlap, gaps, split = analyse_overlap(found), longest_gaps(found), sm_split(found)
    if as_json:
        value = {"path": found.path, "rank": found.rank, "world_size": found.world_size}
        value |= dataclasses.asdict(overlap)
        value |= {"gaps": [dataclasses.asdict(gap) for gap in gaps], "sm_split": split}
        click.echo(json.dumps(value))
    else:
        click.echo("\n".join(report_lines(found, overlap, gaps, split)))


@trace.command()
@click.argument("before")
@click.argument("after")
@click.option("--tolerance", default=0.05, show_default=True, help="Allowed growth, as a share.")
@click.option("--json", "as_json", is_flag=True, help="One JSON value on stdout.")
def compare(before: str, after: str, tolerance: float, as_json: bool) -> None:
    """Compare two traces; exit code 1 when AFTER is worse than BEFORE beyond the tolerance."""
    from trainer_io.moe.profile import analyse_overlap
    from trainer_io.moe.profile import compare as compare_reports
    from trainer_io.moe.profile.text import comparison_lines

    was, now = (analyse_overlap(_read_trace(file)) for file in (before, after))
    changes = compare_reports(was, now, tolerance)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(change) for change in changes]))
    else:
        click.echo("\n".join(comparison_lines(changes)))
    if any(change.is_regression for change in changes):
        sys.exit(1)


def main() -> None:
    try:
        command(prog_name="trainer-io")
    except (OSError, ValueError) as error:
        click.echo(f"trainer-io: {error}", err=True)
        sys.exit(1)


def _read_trace(file: str) -> "Trace":
    from trainer_io.moe.profile import TraceError, read_trace

    try:
        return read_trace(file)
    except (OSError, TraceError) as error:
        click.echo(f"trainer-io: {error}", err=True)
        sys.exit(2)


def _show_parquet(found: "ParquetInfo") -> None:
    _line("path", found.path)
    _line("files", f"{found.files} parquet, {format_bytes(found.stored_bytes)}")
    _line("rows", f"{found.rows:,}")
    _line(
        "row groups",
        f"{found.row_groups:,}, decoded median {format_bytes(found.row_group_bytes_median)}, "
        f"largest {format_bytes(found.row_group_bytes_max)}",
    )
    _line("fingerprint", found.fingerprint)
    width = max(len(column.name) for column in found.columns)
    for column in found.columns:
        elements = f"  {column.values:,} values" if column.values != found.rows else ""
        stored = format_bytes(column.stored_bytes)
        click.echo(f"  {column.name:<{width}}  {stored:>10}  {column.type}{elements}")


def _show_files(found: "FilesInfo") -> None:
    _line("path", found.path)
    _line("files", f"{found.files:,}, {format_bytes(found.stored_bytes)}")
    _line(
        "sizes",
        f"median {format_bytes(found.file_bytes_median)}, "
        f"largest {format_bytes(found.file_bytes_max)}",
    )
    _line("fingerprint", found.fingerprint)
    for extension, count in list(found.extensions.items())[:EXTENSIONS_SHOWN]:
        click.echo(f"  {extension:<10} {count:,}")


def _line(name: str, value: str) -> None:
    click.echo(f"{name:<12} {value}")


if __name__ == "__main__":
    main()
