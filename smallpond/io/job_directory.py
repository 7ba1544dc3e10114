"""Where the files of a session lie: `{data_root}/{time}.{job_id}/...`, as published.

    config/  log/  output/      kept (output unless removed by the session's setting)
    queue/  staging/  temp/     removed when the session ends well

Intermediate files are `staging/{stage}/{partition}.{attempt}.arrow`.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile

from smallpond.io import files


@dataclasses.dataclass(frozen=True)
class JobDirectory:
    """Paths of one job under the data root; the root may be a URL."""

    root: str

    @property
    def local_temp(self) -> str:
        """Scratch space that DuckDB can spill to: the job's own, or the machine's."""
        if files.is_remote(self.root):
            name = files.parent_and_name(self.root)[1]
            return os.path.join(tempfile.gettempdir(), f"smallpond-{name}")
        return self.temp_root

    @property
    def queue_root(self) -> str:
        return files.join(self.root, "queue")

    @property
    def staging_root(self) -> str:
        return files.join(self.root, "staging")

    @property
    def temp_root(self) -> str:
        return files.join(self.root, "temp")

    @property
    def output_root(self) -> str:
        return files.join(self.root, "output")

    @property
    def config_root(self) -> str:
        return files.join(self.root, "config")

    @property
    def log_root(self) -> str:
        return files.join(self.root, "log")

    @property
    def job_status_path(self) -> str:
        return files.join(self.log_root, ".STATUS")

    def create(self) -> None:
        place = files.files_for(self.root)
        for path in (
            self.queue_root,
            self.staging_root,
            self.temp_root,
            self.output_root,
            self.config_root,
            self.log_root,
        ):
            place.make_directory(path)

    def stage_directory(self, stage: int) -> str:
        return files.join(self.staging_root, str(stage))

    def attempt_path(self, stage: int, partition: int, attempt: int) -> str:
        return files.join(self.stage_directory(stage), f"{partition}.{attempt}.arrow")

    def remove_scratch(self, and_output: bool) -> None:
        place = files.files_for(self.root)
        for path in (self.queue_root, self.staging_root, self.temp_root):
            place.remove_tree(path)
        files.files_for("/").remove_tree(self.local_temp)
        if and_output:
            place.remove_tree(self.output_root)
