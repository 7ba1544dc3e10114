"""The command `trainer-io`. Exit codes: 0 done, 1 an error, 2 wrong arguments."""

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Final

import click

from fs3.units import format_bytes

if TYPE_CHECKING:
    from trainer_io.dataset.info import FilesInfo, ParquetInfo

EXTENSIONS_SHOWN: Final = 8


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`trainer-io dataset info --help` explains the command.",
)
@click.version_option(package_name="fs3", prog_name="trainer-io")
def command() -> None:
    """Training data on fs3 or on the local disk."""


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


def main() -> None:
    try:
        command(prog_name="trainer-io")
    except (OSError, ValueError) as error:
        click.echo(f"trainer-io: {error}", err=True)
        sys.exit(1)


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
