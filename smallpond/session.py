"""A session: where data frames come from, and where their plans are run."""

from __future__ import annotations

import atexit
import collections
import datetime
import itertools
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa

from smallpond.config import Config
from smallpond.core.events import JobId
from smallpond.errors import PlanError, SmallpondError
from smallpond.execution import progress, timeline
from smallpond.execution.runner import JobHandle, Runner
from smallpond.io import arrow, files
from smallpond.io.commit import OutputDirectory
from smallpond.io.job_directory import JobDirectory
from smallpond.io.segments import SegmentWriter, read_segments
from smallpond.operators.scan_parquet import ScanParquet
from smallpond.operators.scan_text import ScanText
from smallpond.operators.sql import Sql, input_uses
from smallpond.operators.step import Sink, TaskOutput
from smallpond.operators.store import Store, output_of
from smallpond.operators.write_files import ParquetOptions, WriteParquet
from smallpond.plan.explain import explained
from smallpond.plan.planner import Plan, Planner, TypesUnknown
from smallpond.plan.relation import ByFiles, Literal, Relation, keys_may_be_together
from smallpond.plan.selection import OfFiles, RunOfFileRows
from smallpond.plan.stage import Stage, StageId

if TYPE_CHECKING:
    import pandas as pd

    from smallpond.dataframe import DataFrame

_HELD_INLINE_BYTES_MAX = 64 << 10
_LOGURU_HINT = (
    "HINT: DO NOT use externally imported loguru logger in your task. "
    "Please import it within the task."
)


_GROUP_BY = re.compile(r"\bgroup\s+by\b", re.I)
_PICKLE_HINT = (
    "A function sent to workers must not refer to locks, open files, connections or sessions; "
    "create them inside the function."
)


class UnpicklableTask(SmallpondError, RuntimeError):
    """A function, or something it refers to, cannot be sent to a worker."""


class Session:
    """Builds data frames and runs them on worker processes. Made by `smallpond.init`."""

    def __init__(self, config: Config, directory: JobDirectory, runner: Runner) -> None:
        self.config = config
        self._directory = directory
        self._runner = runner
        self._lock = threading.RLock()
        self._stage_ids = itertools.count(1)
        self._job_ids = itertools.count(1)
        self._salts = itertools.count(1)
        self._stored: dict[Relation, StageId] = {}
        self._held: weakref.WeakKeyDictionary[Relation, TaskOutput] = weakref.WeakKeyDictionary()
        self._schemas: weakref.WeakKeyDictionary[Relation, pa.Schema] = weakref.WeakKeyDictionary()
        self._users: collections.Counter[Relation] = collections.Counter()
        self._unused: collections.deque[Relation] = collections.deque()
        self._has_failed = False
        self._is_closed = False
        atexit.register(self.shutdown)

    @property
    def _runtime_ctx(self) -> JobDirectory:
        """The published name; scripts read the roots of the job's directories from it."""
        return self._directory

    @property
    def runtime_ctx(self) -> JobDirectory:
        return self._directory

    # Sources

    def read_parquet(
        self,
        paths: str | Sequence[str],
        recursive: bool = False,
        columns: Sequence[str] | None = None,
        union_by_name: bool = False,
    ) -> DataFrame:
        """A frame of parquet files, as one partition; nothing is read yet.

        Args:
            paths: files, directories or globs, local or URLs.
            recursive: look into sub-directories (`**` and directories).
            columns: read only these.
            union_by_name: files may lack columns of others.
        """
        scan = ScanParquet(
            paths=_complete(paths),
            recursive=recursive,
            columns=None if columns is None else tuple(columns),
            union_by_name=union_by_name,
        )
        return self._frame(Relation(scan, label=label("read_parquet")))

    def read_csv(
        self,
        paths: str | Sequence[str],
        schema: Mapping[str, str] | None = None,
        delim: str = ",",
        *,
        header: bool = False,
        recursive: bool = False,
        **options: Any,
    ) -> DataFrame:
        """A frame of CSV files, as one partition.

        Args:
            paths: files, directories or globs, local or URLs.
            schema: column names with DuckDB types; None to find them out from the files.
            delim: between fields; `r"\\t"` is a tab.
            header: the first line of each file names the columns.
            recursive: look into sub-directories.
            options: further arguments of DuckDB's `read_csv`, such as nullstr, quote, escape.
        """
        delim = delim.replace("\\t", "\t")
        given = {"delim": delim, "header": header, **options}
        scan = ScanText(
            function="read_csv",
            paths=_complete(paths),
            schema=tuple((schema or {}).items()),
            options=tuple(given.items()),
            recursive=recursive,
        )
        return self._frame(Relation(scan, label=label("read_csv")))

    def read_json(
        self,
        paths: str | Sequence[str],
        schema: Mapping[str, str] | None = None,
        *,
        recursive: bool = False,
        **options: Any,
    ) -> DataFrame:
        """A frame of newline-delimited JSON files, as one partition.

        Args:
            paths: files, directories or globs, local or URLs.
            schema: column names with DuckDB types; None to find them out from the files.
            recursive: look into sub-directories.
            options: further arguments of DuckDB's `read_json`.
        """
        given = {"format": "newline_delimited", **options}
        scan = ScanText(
            function="read_json",
            paths=_complete(paths),
            schema=tuple((schema or {}).items()),
            options=tuple(given.items()),
            recursive=recursive,
        )
        return self._frame(Relation(scan, label=label("read_json")))

    def from_items(self, items: Sequence[Any]) -> DataFrame:
        """A frame of dictionaries, or of other values in one column `item`."""
        if not items:
            raise PlanError("from_items needs at least one item, to know the columns")
        rows = items if isinstance(items[0], dict) else [{"item": item} for item in items]
        return self._literal(pa.Table.from_batches([arrow.rows_to_batch(rows, None)]), "from_items")

    def from_arrow(self, table: pa.Table) -> DataFrame:
        """A frame of the rows of an Arrow table."""
        return self._literal(table, "from_arrow")

    def from_pandas(self, df: pd.DataFrame) -> DataFrame:
        """A frame of the rows of a pandas data frame; its index is left out."""
        return self._literal(pa.Table.from_pandas(df, preserve_index=False), "from_pandas")

    def partial_sql(self, query: str, *inputs: DataFrame, **kwargs: Any) -> DataFrame:
        """Run a DuckDB query on each partition.

        Inputs are named `{0}`, `{1}`, ... and must have the same number of partitions; one with a
        single partition is given to all. Without inputs the query runs once.
        """
        from smallpond.dataframe import step_options

        statements = (query,)
        input_uses(statements, len(inputs))
        options = step_options(kwargs)
        _warn_of_partial_groups(query, [frame.plan for frame in inputs])
        relation = Relation(
            Sql(statements, self.next_salt()),
            [frame.plan for frame in inputs],
            label=label("partial_sql"),
            resources=options,
        )
        return self._frame(relation)

    # Running

    def sql(self, query: str, *inputs: DataFrame, **kwargs: Any) -> DataFrame:
        """Run a DuckDB query over whole frames, named `{0}`, `{1}`, ...

        It is right whatever the partitions, and runs as one task with all idle threads of one
        machine; the result is one partition.
        """
        from smallpond.dataframe import step_options

        where, options = label("sql"), step_options(kwargs)
        whole = [
            frame.plan
            if frame.plan.partitions == 1
            else Relation(ByFiles(1), [frame.plan], label=where)
            for frame in inputs
        ]
        input_uses((query,), len(inputs))
        step = Sql((query,), self.next_salt())
        return self._frame(Relation(step, whole, label=where, resources=options))

    def wait(self, *dfs: DataFrame) -> None:
        """Compute several frames together, and do the writes of `write_parquet_lazy`."""
        from smallpond.dataframe import LazyWrite

        self.compute([frame.plan for frame in dfs if not isinstance(frame, LazyWrite)])
        for frame in dfs:
            frame.compute()

    def compute(self, relations: Sequence[Relation]) -> None:
        """Store the rows of the relations, unless they are stored or held already."""
        with self._lock:
            roots: list[tuple[Relation, Sink]] = [
                (relation, Store())
                for relation in dict.fromkeys(relations)
                if relation not in self._stored and not isinstance(relation.operator, Literal)
            ]
            if roots:
                self._run(roots)

    def collect(self, relation: Relation, rows_max: int | None = None) -> pa.Table:
        """The rows of a relation, or its first ones, in order of partition."""
        if isinstance(relation.operator, Literal):
            table = arrow.large_table(relation.operator.table)
            return table if rows_max is None else table.slice(0, rows_max)
        self.compute([relation])
        outputs = self._outputs(relation)
        schema = arrow.unify(output.arrow_schema() for output in outputs)
        batches = []
        left = sum(o.rows for o in outputs) if rows_max is None else rows_max
        for batch in read_segments([s for o in outputs for part in o.parts for s in part]):
            if left <= 0:
                break
            batches.append(arrow.cast_batch(batch.slice(0, left), schema))
            left -= batch.num_rows
        return pa.Table.from_batches(batches, schema)

    def schema(self, relation: Relation) -> pa.Schema:
        """Column names and types, found without computing the rows where that is possible."""
        with self._lock:
            while relation not in self._schemas:
                self._collect_garbage()
                self._hold_literals([relation])
                try:
                    plan = self._execute(self._planner().probe(relation))
                except TypesUnknown as unknown:
                    self._run([(unknown.relation, Store())], keep=[unknown.relation])
                    continue
                stage = plan.roots[relation]
                (output,) = (o for o in self._runner.outputs[stage] if o is not None)
                self._schemas[relation] = output.arrow_schema()
                self._forget_stages([stage])
            return self._schemas[relation]

    def explain(self, relation: Relation) -> str:
        """The stages that computing a relation would run."""
        with self._lock:
            self._hold_literals([relation])
            return explained(self._planner().plan([(relation, Store())]))

    def batches(self, relation: Relation, batch_rows: int) -> Iterator[pa.Table]:
        """The rows of a relation as tables of `batch_rows` rows."""
        table = self.collect(relation)
        for first in range(0, table.num_rows, batch_rows):
            yield table.slice(first, batch_rows)

    def count(self, relation: Relation) -> int:
        """The number of rows; for parquet files out of their footers."""
        operator = relation.operator
        if isinstance(operator, Literal):
            return int(operator.table.num_rows)
        if isinstance(operator, ScanParquet):
            return sum(piece.rows or 0 for piece in operator.counted(operator.pieces()))
        self.compute([relation])
        return sum(output.rows for output in self._outputs(relation))

    def write(
        self, relation: Relation, path: str, mode: str, options: ParquetOptions
    ) -> Sequence[str]:
        """Write the rows of a relation as parquet files below `path`."""
        output = OutputDirectory(path, mode)
        output.begin()
        try:
            with self._lock:
                plan = self._run([(relation, WriteParquet(output.attempts, options))])
                written = [o for o in self._runner.outputs[plan.roots[relation]] if o is not None]
                schema = arrow.unify(o.arrow_schema() for o in written)
                names = [(i, path) for i, o in enumerate(written) for path in o.written]
            output.commit(names, relation.partitions, schema)
        except BaseException:
            output.abort()
            raise
        return [name for _, name in names]

    def next_salt(self) -> int:
        """Tells the random numbers of one step from those of another; counts from 1."""
        return next(self._salts)

    def is_computed(self, relation: Relation) -> bool:
        return relation in self._stored or isinstance(relation.operator, Literal)

    def recompute(self, relation: Relation) -> None:
        """Forget the stored rows of a relation."""
        with self._lock:
            self._forget([relation])

    def _outputs(self, relation: Relation) -> list[TaskOutput]:
        stage = self._stored[relation]
        return [output for output in self._runner.outputs[stage] if output is not None]

    def _run(self, roots: Sequence[tuple[Relation, Sink]], keep: Sequence[Relation] = ()) -> Plan:
        """Plan and run; the caller holds the lock.

        Args:
            keep: relations whose rows are kept although no frame names them.
        """
        if self._is_closed:
            raise SmallpondError("the session is shut down; call smallpond.init() again")
        self._collect_garbage()
        self._hold_literals([relation for relation, _ in roots])
        return self._execute(self._planner().plan(roots), keep)

    def _planner(self) -> Planner:
        return Planner(
            computed=self._stored,
            held=self._held,
            stage_ids=self._stage_ids,
            seed=_seed(self.config),
            cpus=self.config.cpus,
        )

    def _execute(self, plan: Plan, keep: Sequence[Relation] = ()) -> Plan:
        """Run the stages of a plan; the caller holds the lock."""
        _list_files(plan.stages)
        handle = JobHandle(JobId(next(self._job_ids)), plan.stages)
        pipelines = {stage.id: _pickled(stage) for stage in plan.stages}
        place = files.files_for(self._directory.root)
        for stage in plan.stages:
            place.make_directory(self._directory.stage_directory(stage.id))
        self._runner.submit(handle, pipelines)
        try:
            progress.wait(handle)
        except BaseException:
            self._runner.cancel(handle)
            handle.finished.wait()
            self._has_failed = True
            self._forget_stages([stage.id for stage in plan.stages])
            raise
        if handle.error is not None:
            self._has_failed = True
            self._forget_stages([stage.id for stage in plan.stages])
            raise handle.error
        self._keep(plan, keep)
        return plan

    def _keep(self, plan: Plan, also: Sequence[Relation]) -> None:
        """Keep what a frame of the user's still names; the rest was for this run only."""
        wanted = {*self._stored, *also}
        kept = {r: s for r, s in plan.stored.items() if r in wanted or self._users[r] > 0}
        needed = set(kept.values()) | set(plan.roots.values())
        self._stored = kept
        self._forget_stages([stage.id for stage in plan.stages if stage.id not in needed])

    def _hold_literals(self, roots: Sequence[Relation]) -> None:
        """Put the rows of literals where workers can read them."""
        pending, seen = list(roots), set(roots)
        while pending:
            relation = pending.pop()
            pending += [child for child in relation.inputs if child not in seen]
            seen.update(relation.inputs)
            if isinstance(relation.operator, Literal) and relation not in self._held:
                self._held[relation] = self._written_out(relation, relation.operator.table)

    def _written_out(self, relation: Relation, table: pa.Table) -> TaskOutput:
        large = arrow.large_table(table)
        path = files.join(self._directory.staging_root, f"held-{relation.number}.arrow")
        writer = SegmentWriter(path, _HELD_INLINE_BYTES_MAX)
        segments = [writer.write(large.schema, [batch]) for batch in large.to_batches()]
        writer.close()
        return output_of([segments], large.schema)

    # Life of frames and session

    def _frame(self, relation: Relation) -> DataFrame:
        from smallpond.dataframe import DataFrame

        return DataFrame(self, relation)

    def _literal(self, table: pa.Table, name: str) -> DataFrame:
        return self._frame(Relation(Literal(table), label=label(name)))

    def _add_user(self, frame: DataFrame, relation: Relation) -> None:
        """A frame names the relation until it is collected."""
        self._users[relation] += 1
        weakref.finalize(frame, self._unused.append, relation).atexit = False

    def _collect_garbage(self) -> None:
        """Forget the rows of relations that no frame names any more."""
        while self._unused:
            relation = self._unused.popleft()
            self._users[relation] -= 1
            if self._users[relation] <= 0:
                del self._users[relation]
                self._forget([relation])

    def _forget(self, relations: Sequence[Relation]) -> None:
        stages = [self._stored.pop(r) for r in relations if r in self._stored]
        self._forget_stages(stages)

    def _forget_stages(self, stages: Sequence[StageId]) -> None:
        if not stages:
            return
        self._runner.forget(stages)
        place = files.files_for(self._directory.root)
        for stage in stages:
            place.remove_tree(self._directory.stage_directory(stage))

    def shutdown(self) -> None:
        """End the workers and remove what the job left, unless something failed. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        atexit.unregister(self.shutdown)
        self._runner.close()
        self.dump_timeline()
        self._append_status("failure" if self._has_failed else "success")
        if not self._has_failed:
            self._directory.remove_scratch(and_output=self.config.remove_output_root)

    def dump_timeline(self, path: str | None = None) -> None:
        """Write what ran when: an HTML page, and a Chrome trace beside it.

        Args:
            path: directory; the job's log directory if not given.
        """
        directory = files.complete_path(path or self._directory.log_root)
        place = files.files_for(directory)
        place.make_directory(directory)
        history = list(self._runner.history)
        pages = {
            "timeline.html": timeline.as_html(history, self.config.job_id),
            "timeline_exec": timeline.as_chrome_trace(history),
        }
        for name, text in pages.items():
            with place.open_output(files.join(directory, name)) as file:
                file.write(text.encode())

    def _append_status(self, word: str) -> None:
        place = files.files_for(self._directory.root)
        line = f"{word}@{datetime.datetime.now():%Y-%m-%d-%H-%M-%S}\n"
        with place.open_output(self._directory.job_status_path) as file:
            file.write(line.encode())

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_failed |= error is not None
        self.shutdown()


def _warn_of_partial_groups(query: str, inputs: Sequence[Relation]) -> None:
    """A GROUP BY over partitions that may share keys gives each key once per partition."""
    if _GROUP_BY.search(query) and any(not keys_may_be_together(r) for r in inputs):
        warnings.warn(
            "partial_sql groups within each partition, and the frame is not partitioned by key, "
            "so a key may come out several times; use df.group_by(...).agg(...), or "
            "repartition(n, hash_by=...) by the keys first",
            stacklevel=3,
        )


def _seed(config: Config) -> int:
    """The same job id gives the same random numbers."""
    return int.from_bytes(config.job_id.encode()[:8].ljust(8, b"\0"), "little")


def _complete(paths: str | Sequence[str]) -> tuple[str, ...]:
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return tuple(files.complete_path(path) for path in given)


def _list_files(stages: Sequence[Stage]) -> None:
    """Look up the files of all sources now, in the user's thread, which takes the errors."""
    for stage in stages:
        for selection in stage.inputs:
            if isinstance(selection, RunOfFileRows):
                selection.listing.counted  # noqa: B018
            elif isinstance(selection, OfFiles):
                selection.listing.pieces  # noqa: B018


def _pickled(stage: Stage) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(stage.pipeline)
    except Exception as error:
        hint = _LOGURU_HINT if "loguru" in sys.modules else _PICKLE_HINT
        raise UnpicklableTask(f"Can't pickle task {stage.label}: {error}. {hint}") from error
    return data


_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def label(name: str) -> str:
    """`name` and where in the user's code it was called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{name} at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
