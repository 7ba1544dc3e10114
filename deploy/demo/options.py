"""Options of the command, read before anything heavy is loaded."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """Attributes:
    quick: less data and fewer steps.
    as_json: end with a JSON object.
    keep: leave the cluster running.
    directory: where to work; None for a temporary one.
    """

    quick: bool = False
    as_json: bool = False
    keep: bool = False
    directory: Path | None = None


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Exits with 0 after `--help` and with 2 on an unknown option."""
    parser = argparse.ArgumentParser(
        prog="./run demo",
        description="Stores real files in a cluster on this machine, runs a data job over them, "
        "trains a small model on the result, kills a storage node and goes on.",
    )
    parser.add_argument("--quick", action="store_true", help="less data and fewer steps")
    parser.add_argument("--json", action="store_true", help="a JSON object as the last line")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument(
        "--dir", type=Path, help="where to work: a new or empty directory, by default a temporary"
    )
    found = parser.parse_args(arguments)
    return Options(found.quick, found.json, found.keep, found.dir)
