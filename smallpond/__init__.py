"""smallpond: data frames in partitions, computed by DuckDB and Arrow on many processes.

    import smallpond
    sp = smallpond.init()
    df = sp.read_parquet("prices/*.parquet").repartition(3, hash_by="ticker")
    df = sp.partial_sql("select ticker, min(price), max(price) from {0} group by ticker", df)
    df.write_parquet("output/")
    print(df.to_pandas())

Importing it is cheap; everything heavy is loaded by `init`.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smallpond.dataframe import DataFrame
    from smallpond.session import Session

__version__ = "0.1.0"
__all__ = ["DataFrame", "Session", "init"]


def init(
    job_id: str | None = None,
    job_time: datetime.datetime | float | str | None = None,
    job_name: str | None = None,
    data_root: str | None = None,
    num_executors: int | None = None,
    ray_address: str | None = None,
    bind_numa_node: bool | None = None,
    platform: str | None = None,
    _remove_output_root: bool = True,
    **kwargs: Any,
) -> Session:
    """Start a session on worker processes of this machine.

    The environment variables SP_JOBID, SP_JOB_TIME, SP_JOB_NAME, SP_DATA_ROOT and SP_NUM_EXECUTORS
    win over the arguments.

    Args:
        job_id: name of the job; random if not given. The same name gives the same random numbers.
        job_time: when the job was started, as datetime, timestamp or ISO text; now if not given.
        job_name: a name for people.
        data_root: directory or URL for intermediate files and logs; `~/.smallpond/data`.
        num_executors: worker processes; one per core if not given.
        ray_address: not in this version.
        bind_numa_node: accepted; local workers are placed by the kernel.
        platform: accepted; only this machine is known.
        kwargs: memory_allocator is accepted; anything else is an error.

    Raises:
        SmallpondError: a setting cannot be understood or asks for what is not there.
        TypeError: an argument nobody knows.
    """
    import os

    from smallpond.config import config_from
    from smallpond.execution.start import start_runner
    from smallpond.io.job_directory import JobDirectory

    del bind_numa_node, platform
    kwargs.pop("memory_allocator", None)
    if kwargs:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(kwargs))}")
    arguments = {
        "job_id": job_id,
        "job_time": job_time,
        "job_name": job_name,
        "data_root": data_root,
        "num_executors": num_executors,
        "ray_address": ray_address,
        "_remove_output_root": _remove_output_root,
    }
    config = config_from(arguments, os.environ)
    directory = JobDirectory(config.job_directory)
    directory.create()
    runner = start_runner(config, directory)
    from smallpond.session import Session  # loads Arrow, while the first worker does the same

    return Session(config, directory, runner)


def __getattr__(name: str) -> Any:
    if name == "Session":
        from smallpond.session import Session

        return Session
    if name == "DataFrame":
        from smallpond.dataframe import DataFrame

        return DataFrame
    raise AttributeError(f"module 'smallpond' has no attribute {name!r}")
