"""Puts scheduler, launcher and runner together for a session."""

from __future__ import annotations

from smallpond.config import Config
from smallpond.core.policy import Policy
from smallpond.core.scheduler import Scheduler
from smallpond.execution.runner import Runner
from smallpond.io import files
from smallpond.io.job_directory import JobDirectory
from smallpond.launch.local import LocalLauncher


def start_runner(config: Config, directory: JobDirectory) -> Runner:
    """A runner whose first worker is starting."""
    logs = None if files.is_remote(directory.root) else directory.log_root
    workers_max = config.num_executors or config.cpus
    launcher = LocalLauncher(
        workers_max, config.cpus, config.memory_bytes, logs, directory.local_temp
    )
    return Runner(Scheduler(Policy()), launcher, directory)
