"""`./run sim [SEED | --count N] [--machine NAME]`: seeds of every simulation, until one fails.

Exit 0 when every seed held, 1 with the failing seed and how to replay it, 2 for a wrong call.
"""

import sys
import time
import traceback
from collections.abc import Callable
from itertools import count
from typing import Any

import click
from rich.progress import Progress, TimeElapsedColumn

from tests.sim import cluster_sim, test_replica_sim

MACHINES: dict[str, Callable[[int], Any]] = {
    "replica": test_replica_sim.play,
    "manager": cluster_sim.run_seed,
}
"""Name -> a function that plays one seed and raises AssertionError on a violation."""


@click.command(help=__doc__)
@click.argument("seed", type=int, required=False)
@click.option("--count", "seeds", type=click.IntRange(1), default=50, show_default=True)
@click.option("--minutes", type=float, default=10.0, show_default=True, help="Stop after this.")
@click.option("--machine", type=click.Choice(list(MACHINES)), help="Only this simulation.")
def main(seed: int | None, seeds: int, minutes: float, machine: str | None) -> None:
    chosen = {machine: MACHINES[machine]} if machine else MACHINES
    wanted = [seed] if seed is not None else list(range(seeds))
    until = time.monotonic() + minutes * 60
    played = count()
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task("seeds", total=len(wanted) * len(chosen))
        for number in wanted:
            for name, play in chosen.items():
                if time.monotonic() > until:
                    print(f"sim: good, but only {next(played)} runs fitted into {minutes} minutes")
                    sys.exit(0)
                _play(name, play, number)
                next(played)
                bar.advance(task)
    print(f"sim: good, {next(played)} runs of {', '.join(chosen)}")


def _play(name: str, play: Callable[[int], Any], seed: int) -> None:
    try:
        play(seed)
    except Exception:
        traceback.print_exc()
        print(f"sim: seed {seed} of {name} failed; replay: ./run sim {seed} --machine {name}")
        sys.exit(1)


if __name__ == "__main__":
    main()
