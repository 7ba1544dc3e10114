"""smallpond beside single-process engines: parquet to parquet, each run a process of its own.

A sample is the wall time of a fresh process from its start to its end, imports and worker start
included; CPU is that of the process and all it started, per row. Every engine may use all cores.
The published package takes 3.4 (sort), 4.6 (group-by) and 1.5 (map) times DuckDB's wall time.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.harness import Options, Row, Sample, in_turn, main

FIRST_RESULT: Final = "first result"
TASKS: Final = ("sort", "group-by", "map")
PEERS: Final = {"polars": ["polars"], "dask": ["dask[dataframe]", "distributed"]}
ROWS: Final = (
    *(f"{task} vs duckdb" for task in TASKS),
    *(f"{task} vs {peer}" for peer in PEERS for task in TASKS),
    FIRST_RESULT,
)
_ROOT: Final = Path(__file__).parents[2]
_PEER_PYTHON: Final = _ROOT / ".bench-venv" / "bin" / "python"
_FILES: Final = 8


@dataclass(frozen=True)
class Shape:
    """How many rows each task reads."""

    sort: int
    group_by: int
    map: int

    def rows(self, task: str) -> int:
        return {"sort": self.sort, "group-by": self.group_by, "map": self.map}[task]


FULL: Final = Shape(10_000_000, 20_000_000, 1_000_000)
QUICK: Final = Shape(1_000_000, 4_000_000, 200_000)

# Programs get the input directory and the output directory; `{cores}` is filled in.
SMALLPOND: Final = {
    "sort": "df = sp.read_parquet(source).sort('key', npartitions=8)",
    "group-by": """
df = sp.read_parquet(source).repartition(8, hash_by='k')
df = sp.partial_sql('select k, sum(a) as a, max(b) as b, count(*) as n from {0} group by k', df)
""",
    "map": """
def split(row):
    parts = row['url'].split('/')
    return {'host': parts[2], 'length': len(row['url'])}
df = sp.read_parquet(source).repartition(8).map(split)
""",
}
DUCKDB: Final = {
    "sort": "select * from read_parquet(source) order by key",
    "group-by": (
        "select k, sum(a) as a, max(b) as b, count(*) as n from read_parquet(source) group by k"
    ),
    "map": (
        "select r.host as host, r.length as length "
        "from (select split(url) as r from read_parquet(source))"
    ),
}
DUCKDB_UDF: Final = """
def split(url):
    return {'host': url.split('/')[2], 'length': len(url)}
c.create_function('split', split, ['VARCHAR'], 'STRUCT(host VARCHAR, length BIGINT)')
"""
POLARS: Final = {
    "sort": "pl.scan_parquet(source).sort('key')",
    "group-by": (
        "pl.scan_parquet(source).group_by('k')"
        ".agg(pl.col('a').sum(), pl.col('b').max(), pl.len().alias('n'))"
    ),
    "map": """pl.scan_parquet(source).select(pl.col('url').map_elements(
    lambda u: {'host': u.split('/')[2], 'length': len(u)},
    return_dtype=pl.Struct({'host': pl.String, 'length': pl.Int64})).alias('r')).unnest('r')""",
}
DASK: Final = {
    "sort": "dd.read_parquet(source).sort_values('key')",
    "group-by": (
        "dd.read_parquet(source).groupby('k').agg({'a': 'sum', 'b': 'max', 'n': 'sum'},"
        " split_out=8).reset_index()"
    ),
    "map": """dd.read_parquet(source).map_partitions(lambda part: pd.DataFrame(
    [{'host': u.split('/')[2], 'length': len(u)} for u in part['url']],
    columns=['host', 'length']), meta={'host': 'object', 'length': 'int64'})""",
}


def program(engine: str, task: str) -> str:
    """A script for one engine and task."""
    head = "import sys\nsource, target = sys.argv[1] + '/*.parquet', sys.argv[2]\n"
    if engine == "smallpond":
        return (
            f"{head}import smallpond\nsp = smallpond.init(data_root=sys.argv[3])\n"
            f"{SMALLPOND[task]}\ndf.write_parquet(target)\n"
        )
    if engine == "duckdb":
        query = DUCKDB[task].replace("(source)", "('{source}')")
        return (
            f"{head}import duckdb\nc = duckdb.connect()\n"
            "c.execute('set enable_progress_bar=false')\n"
            f"{DUCKDB_UDF if task == 'map' else ''}\n"
            f'c.execute(f"""copy ({query}) to \'{{target}}/0.parquet\' '
            '(format parquet, compression zstd, compression_level 3)""")\n'
        )
    if engine == "polars":
        return f"{head}import polars as pl\n({POLARS[task]}).sink_parquet(target + '/0.parquet')\n"
    return (
        f"{head}import dask.dataframe as dd, pandas as pd\nfrom dask.distributed import Client\n"
        "if __name__ == '__main__':\n"
        f"    with Client(n_workers={os.cpu_count()}, threads_per_worker=1,"
        " dashboard_address=None):\n"
        f"        ({DASK[task]}).to_parquet(target, write_index=False)\n"
    )


class Bench:
    """Inputs in a temporary directory, and runs of engines over them."""

    def __init__(self, root: Path, shape: Shape) -> None:
        self._root = root
        self._shape = shape

    def generate(self, task: str) -> None:
        """The input of a task, in files of equal length, the same every time."""
        directory = self.source(task)
        directory.mkdir()
        rows = self._shape.rows(task) // _FILES
        with duckdb.connect() as connection:
            connection.execute("set enable_progress_bar=false")
            for index in range(_FILES):
                query = _INPUT[task].format(first=index * rows, last=(index + 1) * rows)
                path = directory / f"{index}.parquet"
                connection.execute(f"copy ({query}) to '{path}' (format parquet)")

    def source(self, task: str) -> Path:
        return self._root / task

    def target(self, engine: str, task: str) -> Path:
        return self._root / f"{engine} {task}"

    def run(self, engine: str, task: str) -> Sample:
        """One fresh process; its output stays for `agrees`."""
        target = self.target(engine, task)
        shutil.rmtree(target, ignore_errors=True)
        if engine != "smallpond":
            target.mkdir()
        script = self._root / f"{engine}_{task}.py"
        script.write_text(program(engine, task))
        python = str(_PEER_PYTHON) if engine in PEERS else sys.executable
        arguments = [str(self.source(task)), str(target), str(self._root / "data")]
        seconds, cpu_seconds = timed([python, str(script), *arguments])
        return Sample(seconds, cpu_seconds * 1e6 / self._shape.rows(task))

    def agrees(self, engine: str, task: str) -> bool:
        """Our rows are those of the other engine; sorted ones are in order over all files."""
        ours, other = (self._summary(e, task) for e in ("smallpond", engine))
        in_order = task != "sort" or is_sorted(self.target("smallpond", task), "key")
        return ours == other and in_order

    def _summary(self, engine: str, task: str) -> tuple[object, ...]:
        files = f"{self.target(engine, task)}/*.parquet"
        columns = {"sort": "key, value", "group-by": "k, a::bigint, b, n", "map": "host, length"}
        query = f"select count(*), sum(hash({columns[task]})::hugeint) from '{files}'"
        with duckdb.connect() as connection:
            rows: list[tuple[object, ...]] = connection.sql(query).fetchall()
        return rows[0]


_INPUT: Final = {
    "sort": (
        "select unhex(md5(i::varchar)[1:20]) as key, unhex(repeat(md5((i + 1)::varchar), 5) || "
        "md5((i + 2)::varchar)[1:20]) as value from range({first}, {last}) as t(i)"
    ),
    "group-by": (
        "select (hash(i) % 2000000)::bigint as k, (i % 1000)::integer as a, "
        "(hash(i + 1) % 1000000) / 1e6 as b, 1::bigint as n from range({first}, {last}) as t(i)"
    ),
    "map": (
        "select 'https://www.site' || (i % 1000) || '.com/path/' || md5(i::varchar) as url "
        "from range({first}, {last}) as t(i)"
    ),
}


def is_sorted(directory: Path, column: str) -> bool:
    """Ascending within each file and from file to file, by name."""
    last: pa.Scalar | None = None
    for path in sorted(directory.glob("*.parquet")):
        values = pq.read_table(path, columns=[column])[column].combine_chunks()
        if not pc.all(pc.greater_equal(values[1:], values[:-1])).as_py():
            return False
        if last is not None and values[0].as_py() < last.as_py():
            return False
        last = values[-1]
    return True


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a process and everything it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(_ROOT)})
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


_TRIVIAL: Final = """
import sys
import smallpond
sp = smallpond.init(data_root=sys.argv[1])
assert sp.from_items([1, 2, 3]).map('item * 2 as x').count() == 3
"""


def first_result(root: Path, options: Options) -> Row:
    """From the start of Python to the result of a trivial query."""

    def ours() -> Sample:
        seconds, cpu = timed([sys.executable, "-c", _TRIVIAL, str(root / "data")])
        return Sample(seconds, cpu * 1e6)

    samples = [ours() for _ in range(options.samples)]
    return Row(
        FIRST_RESULT,
        "s",
        samples,
        "1 s",
        [Sample(1.0)] * len(samples),
        higher_is_better=False,
        verified=True,
        reference_run="stored",
    )


def install_peers() -> None:
    """Peers live in a virtual environment of their own."""
    if not _PEER_PYTHON.exists():
        venv.create(_ROOT / ".bench-venv", with_pip=True)
    packages = [package for packages in PEERS.values() for package in packages]
    subprocess.run([_PEER_PYTHON, "-m", "pip", "install", "-q", "pyarrow", *packages], check=True)


def measure(options: Options) -> Iterator[Row]:
    """All rows that were asked for; one sample of each engine in turn."""
    engines = ["duckdb"]
    if options.peers:
        install_peers()
        engines += PEERS
    with tempfile.TemporaryDirectory(prefix="smallpond-bench-") as name:
        bench = Bench(Path(name), QUICK if options.quick else FULL)
        for task in TASKS:
            wanted = [engine for engine in engines if options.wants(f"{task} vs {engine}")]
            if wanted:
                bench.generate(task)
            for engine in wanted:
                yield compared(bench, engine, task, options.samples)
        if options.wants(FIRST_RESULT):
            yield first_result(Path(name), options)


def compared(bench: Bench, engine: str, task: str, samples: int) -> Row:
    """One task on smallpond and on another engine."""
    ours, reference = in_turn(
        samples, lambda: bench.run("smallpond", task), lambda: bench.run(engine, task)
    )
    return Row(
        f"{task} vs {engine}",
        "s",
        ours,
        engine,
        reference,
        higher_is_better=False,
        verified=bench.agrees(engine, task),
    )


if __name__ == "__main__":
    sys.exit(main("smallpond", ROWS, measure))
