"""Stage "job": a smallpond job cleans, de-duplicates and tokenises the ingested files.

Cleaning keeps files that are UTF-8 without null bytes, makes line ends uniform and drops white
space at line ends. Documents with equal content are kept once. A token is a byte, and 0 ends each
document. One document in sixteen, by content, is set aside for validation.

Verified by an independent query: DuckDB reads the *local* files and counts, in SQL, what must come
out; the result is counted from the parquet files in the cluster.
"""

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

import fs3
import smallpond
from deploy.demo.ingest import SourceFile
from deploy.demo.stage import Advance, require
from trainer_io import ParquetDataset, TokenDataset
from trainer_io.dataset.source import FileSource

VALIDATION_PREFIX: Final = "0"
"""Documents whose content's MD5 starts so are for validation."""

SPLITS: Final = ("train", "validation")

STEPS: Final = 4
"""How often `tokenise` advances."""

_LINE_END_SPACE: Final = re.compile(r"[ \t]+$", re.MULTILINE)

_DEDUPLICATE: Final = """
    select min(name) as name, digest, any_value(text) as text from {0} group by digest
"""

_EXPECTED: Final = """
    with decoded as (select try(decode(content)) as text from read_blob(?)),
    cleaned as (
        select rtrim(regexp_replace(replace(text, chr(13) || chr(10), chr(10)),
                                    '(?m)[ \\t]+$', '', 'g'), chr(10)) as text
        from decoded where text is not null and not contains(text, chr(0))
    ),
    documents as (select distinct md5(text) as digest, strlen(text) as bytes from cleaned
                  where text <> '')
    select digest[1] = ? as validation, count(*), sum(bytes) + count(*)
    from documents group by all
"""


@dataclass(frozen=True, slots=True)
class Counts:
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Tokenised:
    """Parquet directories by split, and what is in them."""

    directories: dict[str, str]
    counts: dict[str, Counts]

    @property
    def rows(self) -> int:
        return sum(counts.documents for counts in self.counts.values())

    @property
    def tokens(self) -> int:
        return sum(counts.tokens for counts in self.counts.values())


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Where the job reads and writes in the cluster at `url`, and where its scratch files are."""

    url: str
    source: str
    target: str
    scratch: Path


def tokenise(
    paths: JobPaths,
    sources: Sequence[SourceFile],
    partitions: int,
    reader: FileSource,
    advance: Advance,
) -> Tokenised:
    """Runs the job over `sources`, which lie in the cluster; advances `STEPS` times.

    Args:
        reader: reads the result from the cluster.
    """
    names = pa.table({"name": [source.name for source in sources]})
    with smallpond.init(data_root=str(paths.scratch), num_executors=partitions) as session:
        texts = (
            session.from_arrow(names)
            .repartition(partitions, by_rows=True)
            .map_batches(functools.partial(read_cleaned, paths.url, paths.source))
            .repartition(partitions, hash_by="digest")
        )
        documents = session.partial_sql(_DEDUPLICATE, texts).map_batches(to_tokens)
        documents.compute()
        advance(1)
        for split in SPLITS:
            is_wanted = "" if split == "validation" else "not "
            chosen = documents.filter(f"{is_wanted}starts_with(digest, '{VALIDATION_PREFIX}')")
            chosen.write_parquet(f"{paths.url}{paths.target}/{split}", mode="overwrite")
            advance(1)
    directories = {split: f"{paths.target}/{split}" for split in SPLITS}
    found = {split: _count(reader, directories[split]) for split in SPLITS}
    expected = count_locally(sources)
    require(found == expected, f"the job wrote {found}, DuckDB counts {expected} in local files")
    advance(1)
    return Tokenised(directories, found)


def read_cleaned(url: str, directory: str, names: pa.Table) -> pa.Table:
    """Reads files from the cluster in one batch: name, text and digest of those that are text."""
    filesystem = _connect(url)
    wanted = names.column("name").to_pylist()
    paths = [f"{directory}/{name}" for name in wanted]
    sizes = [_size(status) for status in filesystem.stat_many(paths)]
    contents = filesystem.read_many([(p, 0, size) for p, size in zip(paths, sizes, strict=True)])
    texts = [clean(content.tobytes()) for content in contents]
    kept = [(name, text) for name, text in zip(wanted, texts, strict=True) if text]
    return pa.table(
        {
            "name": pa.array([name for name, _ in kept], pa.string()),
            "text": pa.array([text for _, text in kept], pa.large_string()),
            "digest": pa.array(
                [hashlib.md5(text.encode()).hexdigest() for _, text in kept], pa.string()
            ),
        }
    )


def clean(content: bytes) -> str:
    """The text of a source file, empty where there is none to learn from."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return ""
    if "\0" in text:
        return ""
    return _LINE_END_SPACE.sub("", text.replace("\r\n", "\n")).rstrip("\n")


def to_tokens(documents: pa.Table) -> pa.Table:
    """Adds a column of byte lists, each ended by 0."""
    encoded = [text.encode() + b"\0" for text in documents.column("text").to_pylist()]
    offsets = np.concatenate(([0], np.cumsum([len(tokens) for tokens in encoded])))
    values = np.frombuffer(b"".join(encoded), np.uint8)
    tokens = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(values))
    return documents.drop_columns("text").append_column("tokens", tokens)


def count_locally(sources: Sequence[SourceFile]) -> dict[str, Counts]:
    """What the job must give, found out by DuckDB from the local files alone."""
    with duckdb.connect() as connection:
        rows = connection.execute(
            _EXPECTED, [[str(source.path) for source in sources], VALIDATION_PREFIX]
        ).fetchall()
    found = {SPLITS[bool(validation)]: Counts(n, tokens) for validation, n, tokens in rows}
    return {split: found.get(split, Counts(0, 0)) for split in SPLITS}


def _count(reader: FileSource, directory: str) -> Counts:
    documents = ParquetDataset(directory, columns=["name"], source=reader)
    return Counts(len(documents), TokenDataset(directory, window=1, source=reader).tokens)


@functools.cache
def _connect(url: str) -> fs3.FileSystem:
    """One connection per worker process."""
    return fs3.connect(url)


def _size(status: object) -> int:
    if isinstance(status, OSError):
        raise status
    return int(status.st_size)  # type: ignore[attr-defined]
