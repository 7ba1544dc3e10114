"""What the cluster commands share: which cluster is meant, and running the local one's script."""

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fs3.cli.settings import CannotRun, Settings

if TYPE_CHECKING:
    from fs3.client.admin import AdminClient

T = TypeVar("T")


def url_of(settings: Settings) -> str:
    """The URL of the cluster that is meant.

    Raises:
        CannotRun: nothing is known of any.
    """
    from fs3.config.cluster import read_cluster_file
    from fs3.errors import Fs3Error

    location = settings.location()
    if location.url is not None:
        return location.url
    try:
        return read_cluster_file(location.directory).url
    except Fs3Error as error:
        raise CannotRun(error.message) from error


def ask(settings: Settings, question: "Callable[[AdminClient], T]") -> "tuple[str, T]":
    """(URL of the cluster that is meant, what its manager answers).

    Raises:
        CannotRun: there is no cluster, or it does not answer.
    """
    from fs3.client.admin import AdminClient
    from fs3.errors import Fs3Error, Unavailable

    url = url_of(settings)
    try:
        with AdminClient(url) as admin:
            return url, question(admin)
    except Unavailable as error:
        location = settings.location()
        if location.url is not None:
            raise CannotRun(error.message) from error
        raise CannotRun(
            f"the cluster in {location.directory} does not answer; "
            f"`fs3 up --dir {location.directory}` starts what is stopped"
        ) from error
    except Fs3Error as error:
        raise CannotRun(error.message) from error


def run_local(settings: Settings, word: str, *arguments: str) -> int:
    """Runs `python -m deploy.local WORD` on the directory that is meant; its exit code."""
    directory = str(settings.location().directory)
    command = [sys.executable, "-m", "deploy.local", word, "--dir", directory, *arguments]
    return subprocess.run(command, check=False).returncode
