"""Settings of the metadata service."""

from typing import Annotated

import msgspec

from fs3.units import MIB

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class JobsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Background work on what the namespace no longer shows.

    Attributes:
        poll_s: how often the queues are looked at when nobody has left work.
        chunk_timeout_s: how long the chunks of one page of files may take before it is retried.
        retry_pause_min_s: before the first retry of failed work; it doubles.
        retry_pause_max_s: up to this.
        garbage_delay_s: how long the chunks of a removed file stay, for readers that have it open.
        files_per_second_max: removed files whose chunks are collected.
        page: records of one queue, or entries of one removed directory, handled together.
        sessions_poll_s: how often write sessions are compared with the clients that live.
        sessions_grace_s: how long a client must have been dead before its sessions are ended.
        replays_expire_s: age at which results kept for retries go, whatever the client said.
    """

    poll_s: Positive = 0.2
    chunk_timeout_s: Positive = 10.0
    retry_pause_min_s: Positive = 0.2
    retry_pause_max_s: Positive = 60.0
    garbage_delay_s: NotNegative = 2.0
    files_per_second_max: Positive = 2000.0
    page: Count = 256
    sessions_poll_s: Positive = 2.0
    sessions_grace_s: Positive = 5.0
    replays_expire_s: Positive = 1800.0


class MetadataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Attributes:
    batch_length_max: requests that share one transaction and one write of the log.
    chunk_size_bytes: default of a new cluster's root directory.
    stripe: default of a new cluster's root directory, in chains.
    root_mode: permissions of a new cluster's root directory; as /tmp by default.
    entries_checked_max: entries that one recursive removal by others than root may look at.
    """

    batch_length_max: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 256
    chunk_size_bytes: Count = MIB
    stripe: Count = 8
    root_mode: Annotated[int, msgspec.Meta(ge=0, le=0o7777)] = 0o1777
    entries_checked_max: Count = 200_000
    jobs: JobsConfig = JobsConfig()
