"""Settings of a client, and where a client looks for its cluster.

`ClientConfig` is a value that is passed in; only `Location.from_environment` reads the environment,
so that everything else can be tested with plain arguments.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from fs3.units import KIB, MIB

DEFAULT_DIRECTORY: Final = Path("~/.local/share/fs3")

SERVER_ENVIRONMENT: Final = (
    "KUBERNETES_SERVICE_HOST",
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "RAY_JOB_ID",
    "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_SIZE",
)
"""Set by schedulers. Under them a private local cluster per process is never what was meant."""


class ClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of one client.

    Attributes:
        metadata_deadline_s: how long a metadata operation is retried over all servers.
        metadata_attempt_s: how long one server may take before the next one is asked.
        metadata_batch_max: requests sent to a metadata server together.
        retry_pause_min_s: first pause between attempts; it doubles up to `retry_pause_max_s`.
        io_deadline_s: how long a chunk read, write or flush is retried over all replicas.
        connect_deadline_s: how long `connect` waits for the cluster manager.
        write_buffer_bytes: what a file object collects before it sends; at least one chunk is.
        readahead_bytes_min: first window of a file that is read in sequence; it doubles.
        readahead_bytes_max: largest window.
        open_cache_s: how long `read_many` trusts what it knows of a file it has opened.
        open_cache_files: how many files `read_many` remembers.
        list_page: entries asked for at once when a directory is listed.
        async_threads: calls of the asyncio face that run at the same time.
    """

    metadata_deadline_s: float = 30.0
    metadata_attempt_s: float = 5.0
    metadata_batch_max: int = 1024
    retry_pause_min_s: float = 0.005
    retry_pause_max_s: float = 0.5
    io_deadline_s: float = 30.0
    connect_deadline_s: float = 5.0
    write_buffer_bytes: int = 8 * MIB
    readahead_bytes_min: int = 64 * KIB
    readahead_bytes_max: int = 4 * MIB
    open_cache_s: float = 1.0
    open_cache_files: int = 65_536
    list_page: int = 1024
    async_threads: int = 32


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look for the cluster: a URL, or else the directory of a local one.

    Attributes:
        url: `fs3://host:port` of the cluster manager, or None.
        directory: of a local cluster; used when there is no URL.
        configured: somebody named the URL or the directory, so nothing is started by itself.
        scheduler: the variable that shows a server environment, or None.
    """

    url: str | None
    directory: Path
    configured: bool
    scheduler: str | None = None

    @classmethod
    def from_environment(
        cls,
        url: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> "Location":
        """Arguments win over `FS3_URL` and `FS3_DIR`; a directory argument wins over `FS3_URL`."""
        if url is None and directory is None:
            url = environment.get("FS3_URL") or None
        directory = directory or environment.get("FS3_DIR") or None
        return cls(
            url=url,
            directory=Path(directory or DEFAULT_DIRECTORY).expanduser().absolute(),
            configured=url is not None or directory is not None,
            scheduler=next((name for name in SERVER_ENVIRONMENT if environment.get(name)), None),
        )
