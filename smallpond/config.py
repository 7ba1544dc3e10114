"""The settings of a session, from arguments and from the published environment variables.

Environment variables win over arguments, as published: that is how a platform starts the same
script in different places.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import uuid
from collections.abc import Mapping
from typing import Any

from smallpond.errors import SmallpondError
from smallpond.io import files

_MEMORY_SHARE = 0.8  # of the machine; the rest is for the driver and the system
_CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"
_CGROUP_CPUS = "/sys/fs/cgroup/cpu.max"


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of one session.

    Attributes:
        data_root: complete path or URL under which the job's directory is made.
        num_executors: worker processes; 0 for one per core.
        remove_output_root: remove `output/` of the job's directory at a good end.
        cpus, memory_bytes: what tasks may use on this machine, together.
    """

    job_id: str
    job_time: datetime.datetime
    job_name: str
    data_root: str
    num_executors: int
    remove_output_root: bool
    cpus: int
    memory_bytes: int

    @property
    def job_directory(self) -> str:
        return files.join(self.data_root, f"{self.job_time:%Y-%m-%d-%H-%M-%S}.{self.job_id}")


def config_from(arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Config:
    """Settings out of `smallpond.init`'s arguments and the environment.

    Raises:
        SmallpondError: a value cannot be understood, or asks for what is not there.
    """
    job_time = environment.get("SP_JOB_TIME") or arguments.get("job_time")
    num_executors = environment.get("SP_NUM_EXECUTORS") or arguments.get("num_executors") or 0
    if environment.get("SP_RAY_ADDRESS") or arguments.get("ray_address"):
        raise SmallpondError(
            "ray_address: this version runs on local worker processes; leave ray_address out"
        )
    data_root = environment.get("SP_DATA_ROOT") or arguments.get("data_root")
    return Config(
        job_id=environment.get("SP_JOBID") or arguments.get("job_id") or str(uuid.uuid4()),
        job_time=_time(job_time),
        job_name=environment.get("SP_JOB_NAME") or arguments.get("job_name") or "smallpond",
        data_root=files.complete_path(data_root or "~/.smallpond/data"),
        num_executors=int(num_executors),
        remove_output_root=bool(arguments.get("_remove_output_root", True)),
        cpus=usable_cpus(),
        memory_bytes=int(usable_memory_bytes() * _MEMORY_SHARE),
    )


def _time(value: object) -> datetime.datetime:
    if value is None:
        return datetime.datetime.now()
    if isinstance(value, datetime.datetime):
        return value
    if isinstance(value, int | float):
        return datetime.datetime.fromtimestamp(value)
    try:
        return datetime.datetime.fromisoformat(str(value))
    except ValueError as error:
        raise SmallpondError(f"job_time: {value!r} is not an ISO date and time") from error


def usable_cpus() -> int:
    """Cores this process may use, by affinity and control group."""
    cpus = len(os.sched_getaffinity(0))
    quota = _read_words(_CGROUP_CPUS)
    if len(quota) == 2 and quota[0].isdigit():
        cpus = min(cpus, max(1, int(quota[0]) // int(quota[1])))
    return cpus


def usable_memory_bytes() -> int:
    """Memory of the machine, or of the control group if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read_words(_CGROUP_LIMIT)
    return min(total, int(limit[0])) if limit and limit[0].isdigit() else total


def _read_words(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []
