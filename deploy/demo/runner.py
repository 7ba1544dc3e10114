"""Runs the stages in order and times them.

The daemons do not outlive this process unless they are to be kept, not even when it is killed.
"""

import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console

import fs3
from deploy.demo.cluster import NODES, Cluster
from deploy.demo.failure import Victim, survive, traffic_steps
from deploy.demo.ingest import ingest, standard_library
from deploy.demo.job import STEPS as JOB_STEPS
from deploy.demo.job import JobPaths, tokenise
from deploy.demo.progress import bar
from deploy.demo.report import Report, StageOutcome
from deploy.demo.restore import restore, save
from deploy.demo.stage import Advance, Scale
from deploy.demo.train import Trainer, leave_cores_to_the_cluster, train
from trainer_io.checkpoint.storage import Fs3Storage

SOURCE: Final = "/demo/source"
TOKENS: Final = "/demo/tokens"
CHECKPOINT: Final = "/demo/checkpoint.safetensors"
LOAD: Final = "/demo/load"

T = TypeVar("T")


class Demo:
    """One run. `report` says at any time what has happened so far.

    Args:
        directory: of its own; for the cluster and for scratch files.
        console: for progress bars.
        keep: leave the cluster running.
    """

    def __init__(self, directory: Path, scale: Scale, console: Console, *, keep: bool) -> None:
        self.report = Report()
        self.cluster = Cluster(directory / "cluster", owner=None if keep else os.getpid())
        self._scratch = directory / "scratch"
        self._scale = scale
        self._console = console

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """Where the daemons and the data job say what they do."""
        return self.cluster.logs, self._scratch

    def stop(self) -> None:
        """Stops the cluster; fine when there is none."""
        self.cluster.stop()

    def run(self) -> None:
        """Raises what the failing stage raised, after noting it in the report."""
        self._scratch.mkdir()
        _log_to(self._scratch / "client.log")
        started = self._stage("cluster", None, lambda _: self.cluster.start())
        with fs3.connect(started.url) as filesystem:
            self._run_on(filesystem, started.url)

    def _run_on(self, filesystem: fs3.FileSystem, url: str) -> None:
        scale = self._scale
        storage = Fs3Storage(filesystem)
        reader = storage.source
        sources = standard_library(scale.files_max)
        self._stage(
            "ingest",
            2 * len(sources),
            lambda advance: ingest(filesystem, sources, SOURCE, advance),
        )
        paths = JobPaths(url, SOURCE, TOKENS, self._scratch)
        tokenised = self._stage(
            "job",
            JOB_STEPS,
            lambda advance: tokenise(paths, sources, scale.partitions, reader, advance),
        )
        leave_cores_to_the_cluster()
        trained = self._stage(
            "train",
            scale.steps,
            lambda advance: train(reader, tokenised.directories, scale, advance),
        )
        trainer = trained.trainer
        saved = self._stage("checkpoint", None, lambda _: save(storage, CHECKPOINT, trainer))
        name = f"node-{random.randint(1, NODES)}"
        victim = Victim(name, lambda: self.cluster.kill(name))
        self._stage(
            "failure",
            traffic_steps(scale),
            lambda advance: survive(filesystem, LOAD, self.cluster.chains, victim, scale, advance),
        )
        fresh = Trainer(reader, tokenised.directories["train"], scale.batch_size)
        self._stage("restore", None, lambda _: restore(storage, saved, trainer, fresh))

    def _stage(self, name: str, total: int | None, work: Callable[[Advance], T]) -> T:
        """Runs one stage under a progress bar and notes how it went."""
        began = time.monotonic()
        result: T | None = None
        error: str | None = "interrupted"
        try:
            with bar(self._console, name, total) as advance:
                result = work(advance)
            error = None
            return result
        except Exception as failure:
            error = f"{failure}" or type(failure).__name__
            raise
        finally:
            elapsed = time.monotonic() - began
            self.report.stages.append(StageOutcome(name, elapsed, result, error))


def _log_to(path: Path) -> None:
    """Sends what the client says, of lost connections for example, to a file."""
    logger = logging.getLogger("fs3")
    logger.addHandler(logging.FileHandler(path))
    logger.propagate = False
