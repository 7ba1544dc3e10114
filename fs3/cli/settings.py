"""Options that every command understands: where the cluster is.

    @click.command()
    @location_options
    @click.pass_obj
    def command(settings: Settings, ...): ...

`fs3 --url U ls` and `fs3 ls --url U` mean the same; the later one wins.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fs3.client.filesystem import FileSystem
    from fs3.config.client import Location


class CannotRun(click.ClickException):
    """The command could not start its work: no cluster, wrong arguments. Exit code 2."""

    exit_code = 2


@dataclass(frozen=True)
class Settings:
    """Attributes:
    url: from `--url`; None leaves it to the environment.
    directory: from `--dir`; None leaves it to the environment.
    connect: opens a file system; tests give their own.
    """

    url: str | None = None
    directory: str | None = None
    connect: "Callable[[str | None, str | None], FileSystem] | None" = None

    def location(self) -> "Location":
        """The cluster that is meant, from the options and the environment."""
        from fs3.config.client import Location

        return Location.from_environment(self.url, self.directory)

    def filesystem(self, url: str | None = None) -> "FileSystem":
        """Connects; never starts a cluster.

        Raises:
            CannotRun: there is no cluster, or it does not answer.
        """
        from fs3.errors import Fs3Error

        try:
            return (self.connect or _connect)(url or self.url, self.directory)
        except Fs3Error as error:
            raise CannotRun(error.message) from error


def location_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--url` and `--dir` to a command and folds them into its `Settings`."""

    @click.option("--url", metavar="URL", help="Cluster: fs3://host:port.  [env: FS3_URL]")
    @click.option("--dir", "directory", metavar="DIR", help="Local cluster.  [env: FS3_DIR]")
    @functools.wraps(function)
    def folded(*args: Any, url: str | None, directory: str | None, **kwargs: Any) -> Any:
        context = click.get_current_context()
        settings = context.obj or Settings()
        if url or directory:
            settings = replace(settings, url=url, directory=directory)
        context.obj = settings
        return function(*args, **kwargs)

    return folded


def _connect(url: str | None, directory: str | None) -> "FileSystem":
    from fs3.client.connect import connect

    return connect(url, directory=directory, start=False)
