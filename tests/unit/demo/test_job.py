"""Cleaning in Python and counting in SQL agree, on the worst files there are."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from deploy.demo.ingest import SourceFile, standard_library
from deploy.demo.job import VALIDATION_PREFIX, Counts, clean, count_locally, to_tokens

NASTY = [
    b"",
    b"\n\n  \n",
    b"plain\n",
    b"plain",
    b"plain  \t\r\n",
    b"lone \r carriage return \r",
    b"a \r\n b\t \n\n c",
    b"null \0 byte",
    b"\xff\xfe not utf-8",
    "ünïcödé \u2028 separators \u3000\n".encode(),
    b"\xef\xbb\xbfbyte order mark",
    b"form feed \x0c \n and vertical tab \x0b\n",
    b" \t x \t ",
]


def sources(directory: Path, contents: list[bytes]) -> list[SourceFile]:
    found = []
    for number, content in enumerate(contents):
        path = directory / f"{number}.py"
        path.write_bytes(content)
        found.append(SourceFile(path, path.name))
    return found


@pytest.mark.parametrize("content", NASTY)
def test_python_and_sql_clean_alike(tmp_path: Path, content: bytes) -> None:
    text = clean(content)
    counts = count_locally(sources(tmp_path, [content]))
    assert sum(c.documents for c in counts.values()) == (1 if text else 0)
    assert sum(c.tokens for c in counts.values()) == (len(text.encode()) + 1 if text else 0)


def test_duplicates_count_once_and_splits_follow_the_content(tmp_path: Path) -> None:
    texts = {f"document {i}" for i in range(100)}
    contents = [text.encode() for text in texts] + [f"{text} \n".encode() for text in texts]
    held_out = {t for t in texts if hashlib.md5(t.encode()).hexdigest()[0] == VALIDATION_PREFIX}
    counts = count_locally(sources(tmp_path, contents))
    assert held_out
    assert counts == {
        "train": _count(texts - held_out),
        "validation": _count(held_out),
    }


def test_tokens_are_the_bytes_of_each_document_and_a_zero() -> None:
    documents = pa.table({"name": ["a", "b"], "text": ["x=1", "ü"], "digest": ["0", "1"]})
    tokens = to_tokens(documents)
    assert tokens.column_names == ["name", "digest", "tokens"]
    assert tokens.column("tokens").to_pylist() == [[*b"x=1", 0], [*"ü".encode(), 0]]


def test_the_sample_of_the_standard_library_is_even() -> None:
    everything = standard_library(None)
    sample = standard_library(50)
    assert len(sample) == 50
    assert set(sample) <= set(everything)
    assert all(source.path.suffix == ".py" for source in sample)
    halves = [everything.index(source) * 2 // len(everything) for source in sample]
    assert halves.count(0) == 25


def _count(texts: set[str]) -> Counts:
    return Counts(len(texts), sum(len(text) + 1 for text in texts))
