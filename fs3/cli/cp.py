"""fs3 cp"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import click

from fs3.cli.output import Progress
from fs3.cli.places import ClusterPlace, Kind, Place, StreamPlace, place
from fs3.cli.settings import CannotRun, Settings, location_options

if TYPE_CHECKING:
    from fs3.client.filesystem import FileSystem

_FILES_AT_ONCE: Final = 8
_QUEUE_MAX: Final = 64


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("target")
@click.option("-r", "--recursive", is_flag=True, help="Directories with everything in them.")
@location_options
@click.pass_obj
def command(settings: Settings, sources: tuple[str, ...], target: str, recursive: bool) -> None:
    """Copy between the local disk and fs3, or within fs3.

    fs3:/path and fs3://host:port/path are in fs3, - is standard input or output, and every other
    path is on the local disk:

    \b
      fs3 cp a.txt fs3:/data/         into the directory /data
      fs3 cp -r fs3:/data ./copy      a tree to the local disk
      fs3 cp fs3:/a fs3:/b            within fs3
      pg_dump db | fs3 cp - fs3:/db.sql

    As with cp, a source goes into TARGET when that is a directory, and becomes TARGET otherwise.
    """
    with ExitStack() as connections:
        clusters: dict[str | None, FileSystem] = {}

        def connect(url: str | None) -> "FileSystem":
            if url not in clusters:
                clusters[url] = connections.enter_context(settings.filesystem(url))
            return clusters[url]

        wanted = _pairs([place(s, connect) for s in sources], place(target, connect), target)
        with Progress("copying", total=0) as progress, _Copies(progress, recursive) as copies:
            for source, destination in wanted:
                if recursive and _is_inside(destination, source):
                    raise CannotRun(f"{source.text}: cannot be copied into itself")
                copies.add(source, destination)


def _pairs(sources: list[Place], target: Place, text: str) -> Iterator[tuple[Place, Place]]:
    """Each source with where it goes."""
    if not any(isinstance(p, ClusterPlace) for p in (*sources, target)):
        raise CannotRun(f"{text}: nothing here is in fs3; write fs3:/path for paths in fs3")
    is_stream = isinstance(target, StreamPlace)
    into = not is_stream and (target.kind(follow=True) is Kind.DIRECTORY or text.endswith("/"))
    if len(sources) > 1 and not into and not is_stream:
        raise CannotRun(f"{text}: not a directory, so only one source can be copied there")
    if into and target.kind(follow=True) is None:
        raise FileNotFoundError(2, "No such directory", text)
    for source in sources:
        if into and not source.name:
            raise CannotRun(f"{text}: is a directory; name the file that standard input becomes")
        yield source, target.below(source.name) if into else target


def _is_inside(place: Place, directory: Place) -> bool:
    """Whether the place, which need not exist yet, is the directory or somewhere below it."""
    if type(place) is not type(directory) or directory.kind(follow=False) is not Kind.DIRECTORY:
        return False
    here, found = place, place.identity()
    if found is None:
        here = place.above()
        found = here.identity()
    wanted = directory.identity()
    while found is not None and found != wanted:
        here, below = here.below(".."), found
        found = here.identity()
        if found == below:  # the root
            return False
    return found is not None


def _is_same(source: Place, target: Place) -> bool:
    """Whether both are one file, which opening the target would empty."""
    if type(source) is not type(target):
        return False
    found = source.identity()
    return found is not None and found == target.identity()


class _Copies:
    """Copies files, some at the same time; leaving the context waits and raises what failed."""

    def __init__(self, progress: Progress, recursive: bool) -> None:
        self._progress = progress
        self._recursive = recursive
        self._pool = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="fs3-cp")
        self._going: list[Future[None]] = []

    def __enter__(self) -> "_Copies":
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if error[0] is None:
                self._settle(0)
        finally:
            self._pool.shutdown(cancel_futures=True)

    def add(self, source: Place, target: Place) -> None:
        """Copies a file in the background, a directory by adding what is in it."""
        kind = source.kind(follow=not self._recursive)
        if kind is None:
            raise FileNotFoundError(2, "No such file or directory", source.text)
        if kind is Kind.LINK:
            target.symlink(source.readlink())
        elif kind is Kind.FILE:
            self._start(source, target)
        elif not self._recursive:
            raise IsADirectoryError(21, "Is a directory; use -r to copy it", source.text)
        else:
            target.mkdir()
            for child in source.children():
                self.add(child, target.below(child.name))

    def _start(self, source: Place, target: Place) -> None:
        if _is_same(source, target):
            raise CannotRun(f"{source.text} and {target.text} are the same file")
        size = source.size()
        if size is None:
            self._progress.total = None
        elif self._progress.total is not None:
            self._progress.total += size
        self._settle(_QUEUE_MAX)
        self._going.append(self._pool.submit(self._copy, source, target))

    def _copy(self, source: Place, target: Place) -> None:
        from fs3.client.transfer import pump

        with source.read() as reader, target.write(source.permissions()) as writer:
            pump(reader, writer, self._progress.advance)

    def _settle(self, still_going: int) -> None:
        while len(self._going) > still_going:
            self._going.pop(0).result()
