"""One DuckDB instance with a budget: the place where SQL steps of one task run.

A pipeline that alternates between SQL and Python has one instance per uninterrupted run of SQL
steps. DuckDB pulls from Python, Python pulls from another DuckDB, and since no instance ever waits
for itself, there is nothing to deadlock on.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb  # the driver describes SQL but never runs it, and starts faster without

# Instances of one task share its memory with Arrow buffers, which DuckDB does not count.
_SHARE_OF_TASK_MEMORY = 0.75
_MEMORY_BYTES_MIN = 64 << 20

# DuckDB's own advice is about a data path that is not used here.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


def quote(name: str) -> str:
    """A column or table name as SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL string."""
    return "'" + text.replace("'", "''") + "'"


class EnginePool:
    """Idle DuckDB instances of a worker: making one costs more than many a task.

    Args:
        temp_directory: where instances spill; they remove what they put there.
    """

    def __init__(self, temp_directory: str) -> None:
        self._temp_directory = temp_directory
        self._idle: list[duckdb.DuckDBPyConnection] = []

    def take(self, threads: int, memory_bytes: int) -> SqlEngine:
        """An instance with the given budget and nothing in it."""
        instance = self._idle.pop() if self._idle else self._new_instance()
        limit = max(_MEMORY_BYTES_MIN, int(memory_bytes * _SHARE_OF_TASK_MEMORY))
        connection = instance.cursor()
        connection.execute(f"set threads = {threads}")
        connection.execute(f"set memory_limit = '{limit}B'")
        return SqlEngine(instance, connection)

    def give_back(self, engine: SqlEngine) -> None:
        """Only after a task that went well; the others' instances are better not trusted."""
        engine.close()
        self._idle.append(engine.instance)

    def _new_instance(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        return duckdb.connect(
            ":memory:",
            config={
                "temp_directory": self._temp_directory,
                "arrow_large_buffer_size": True,
                "allow_unsigned_extensions": True,
            },
        )


class SqlEngine:
    """A connection to a DuckDB instance that nobody else uses; its views and tables go with it."""

    def __init__(
        self, instance: duckdb.DuckDBPyConnection, connection: duckdb.DuckDBPyConnection
    ) -> None:
        self.instance = instance
        self.connection = connection
        self._names = 0

    def seed(self, fraction: float) -> None:
        """Make `random()` repeatable, for a retried task to give the same rows."""
        self.connection.execute(f"select setseed({fraction})").fetchall()

    def view(self, query: str) -> str:
        """Name a query that is read at most once, or whose repetition costs and changes nothing."""
        import duckdb

        name = self._new_name()
        try:
            self.connection.execute(f"create temp view {name} as {query}")
        except (duckdb.BinderException, duckdb.NotImplementedException) as error:
            if "PIVOT" not in str(error).upper():
                raise
            return self.table(query)
        return name

    def table(self, query: str) -> str:
        """Name the rows of a query; they are computed once, now, and spill under pressure."""
        name = self._new_name()
        self.connection.execute(f"create temp table {name} as {query}")
        return name

    def register(self, rows: Any) -> str:
        """Name an Arrow table, dataset or reader; a reader can be read once."""
        name = self._new_name()
        self.connection.register(name, rows)
        return name

    def use_filesystem(self, filesystem: Any) -> None:
        """Let SQL open URLs of an fsspec file system, which stays with the instance."""
        protocol = filesystem.protocol
        name = protocol if isinstance(protocol, str) else protocol[0]
        if self.connection.filesystem_is_registered(name):
            self.connection.unregister_filesystem(name)
        self.connection.register_filesystem(filesystem)

    def query(self, query: str) -> duckdb.DuckDBPyRelation:
        return self.connection.sql(query)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.connection.close()

    def _new_name(self) -> str:
        self._names += 1
        return f"smallpond_{self._names}"
