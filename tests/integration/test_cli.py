"""The file commands on an in-memory cluster: what they print, their exit codes, their errors."""

import importlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fs3.cli.main import SECTIONS, main
from fs3.cli.output import Progress
from fs3.cli.settings import Settings
from fs3.client.fake import FakeCluster
from fs3.client.filesystem import FileSystem
from fs3.client.metadata import Identity
from fs3.errors import Fs3Error, NoSpace, Unavailable, VersionMismatch

FILE_COMMANDS = list(SECTIONS["File"])


class Result(NamedTuple):
    code: int
    out: bytes
    err: str


Run = Callable[..., Result]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def fs(cluster: FakeCluster) -> FileSystem:
    return cluster.connect()


@pytest.fixture
def run(
    cluster: FakeCluster,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    def call(*arguments: str, stdin: bytes = b"", identity: Identity | None = None) -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        settings = Settings(connect=lambda _url, _directory: cluster.connect(identity))
        code = main(list(arguments), settings)
        out, err = capsysbinary.readouterr()
        return Result(code, out, err.decode())

    return call


# Help.


def test_help_names_every_command(run: Run) -> None:
    result = run("--help")
    assert result.code == 0
    for section in SECTIONS.values():
        for name, summary in section.items():
            assert f"{name} ".encode() in result.out
            assert summary.encode() in result.out


@pytest.mark.parametrize("name", FILE_COMMANDS)
def test_summaries_in_the_list_are_those_of_the_commands(name: str, run: Run) -> None:
    command = importlib.import_module(f"fs3.cli.{name}").command
    summary = command.help.partition("\n")[0]
    assert SECTIONS["File"][name] == summary
    assert run(name, "--help").code == 0


@pytest.mark.parametrize("arguments", [["--help"], ["cp", "--help"]])
def test_help_is_instant(arguments: list[str]) -> None:
    spent = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "fs3.cli.main", *arguments],
            check=True,
            capture_output=True,
        )
        spent.append(time.perf_counter() - started)
    assert min(spent) < 0.5  # 0.1 s on a quiet machine; importing numpy or grpc would show


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from fs3.cli.main import main; code = main(['ls', '--help']);"
        "heavy = {'numpy', 'grpc', 'rich', 'msgspec'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


# What commands print.


def test_ls(run: Run, fs: FileSystem) -> None:
    fs.makedirs("/d/e")
    fs.write_bytes("/d/f", b"12345")
    fs.symlink("f", "/d/link")
    assert run("ls", "/d").out == b"e\nf\nlink\n"
    assert run("ls").out == b"d\n"
    assert run("ls", "/d/f").out == b"/d/f\n"
    assert run("ls", "-R", "/").out == b"/d\n/d/e\n/d/f\n/d/link\n"
    long = run("ls", "-l", "/d").out.decode().splitlines()
    assert long[1].startswith("-rw-r--r--   1")
    assert " 5 " in long[1]
    assert long[2].endswith("link -> f")
    rows = json.loads(run("ls", "--json", "/d").out)
    assert [(r["name"], r["type"], r["size"]) for r in rows][1] == ("f", "file", 5)
    assert rows[2]["target"] == "f"


def test_cat(run: Run, fs: FileSystem) -> None:
    fs.write_bytes("/a", bytes(range(256)))
    fs.write_bytes("/b", b"end")
    assert run("cat", "/a", "fs3:/b").out == bytes(range(256)) + b"end"


def test_mkdir_mv_rm(run: Run, fs: FileSystem) -> None:
    assert run("mkdir", "-p", "/a/b/c", "/d").code == 0
    assert run("mkdir", "-p", "/a").code == 0
    fs.write_bytes("/f", b"x")
    assert run("mv", "/f", "/d").code == 0
    assert fs.listdir("/d") == ["f"]
    assert run("mv", "/d/f", "/a", "/d/").code == 0
    assert fs.listdir("/d") == ["a", "f"]
    assert run("rm", "/d/f").code == 0
    assert run("rm", "-r", "/d").code == 0
    assert run("rm", "-f", "/none").code == 0
    assert fs.listdir() == []


def test_stat(run: Run, fs: FileSystem) -> None:
    fs.write_bytes("/f", b"12345")
    fs.symlink("f", "/link")
    out = run("stat", "/f").out.decode()
    assert "size: 5" in out
    assert "mode: 0644 -rw-r--r--" in out
    facts = json.loads(run("stat", "--json", "/f", "/link").out)
    assert facts[0]["type"] == "file"
    assert facts[1]["target"] == "f"


def test_df(run: Run) -> None:
    assert b"fs3://fake:1" in run("df").out
    space = json.loads(run("df", "--json").out)
    assert space["free"] + space["used"] == space["total"]


def test_tree(run: Run, fs: FileSystem) -> None:
    fs.makedirs("/d/e")
    fs.write_bytes("/d/e/f", b"123")
    fs.symlink("e", "/d/l")
    assert run("tree", "/d").out.decode() == (
        "/d\n├── e\n│   └── f\n└── l -> e\n\n1 directories, 2 files\n"
    )
    assert run("tree", "-L", "1", "/d").out.decode().splitlines()[1:3] == ["├── e", "└── l -> e"]
    nested = json.loads(run("tree", "--json", "/d").out)
    assert nested["children"][0]["children"] == [{"name": "f", "type": "file", "size": 3}]


# cp.


@pytest.fixture
def local(tmp_path: Path) -> Path:
    (tmp_path / "src/sub").mkdir(parents=True)
    (tmp_path / "src/a.bin").write_bytes(np.random.default_rng(0).bytes(300_000))
    (tmp_path / "src/sub/b.txt").write_text("b")
    (tmp_path / "src/sub/run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "src/sub/run.sh").chmod(0o755)
    (tmp_path / "src/link").symlink_to("a.bin")
    return tmp_path


def test_cp_there_and_back(run: Run, fs: FileSystem, local: Path) -> None:
    assert run("cp", "-r", f"{local}/src", "fs3:/copy").code == 0
    assert fs.listdir("/copy") == ["a.bin", "link", "sub"]
    assert fs.readlink("/copy/link") == "a.bin"
    assert fs.stat("/copy/sub/run.sh").st_mode & 0o777 == 0o755
    assert run("cp", "-r", "fs3:///copy", f"{local}/back").code == 0
    for name in ("a.bin", "sub/b.txt", "sub/run.sh", "link"):
        assert (local / "back" / name).read_bytes() == (local / "src" / name).read_bytes()
    assert (local / "back/link").is_symlink()
    assert run("cp", "-r", "fs3:/copy", "fs3:/copy2").code == 0
    assert fs.read_bytes("/copy2/a.bin") == (local / "src/a.bin").read_bytes()


def test_cp_into_a_directory(run: Run, fs: FileSystem, local: Path) -> None:
    fs.mkdir("/into")
    assert run("cp", f"{local}/src/a.bin", f"{local}/src/sub/b.txt", "fs3:/into").code == 0
    assert fs.listdir("/into") == ["a.bin", "b.txt"]
    assert run("cp", "-r", f"{local}/src/sub", "fs3:/into/").code == 0
    assert fs.listdir("/into/sub") == ["b.txt", "run.sh"]
    assert run("cp", "fs3:/into/b.txt", str(local)).code == 0
    assert (local / "b.txt").read_text() == "b"


def test_cp_of_standard_streams(run: Run, fs: FileSystem) -> None:
    data = np.random.default_rng(1).bytes(200_000)
    assert run("cp", "-", "fs3:/in", stdin=data).code == 0
    assert fs.read_bytes("/in") == data
    assert run("cp", "fs3:/in", "-").out == data


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["cp", "/tmp/a", "/tmp/b"], 2, "nothing here is in fs3"),
        (["cp", "fs3:/none", "-"], 1, "fs3:/none: No such file or directory"),
        (["cp", "fs3:/dir", "-"], 1, "Is a directory; use -r"),
        (["cp", "fs3:/dir", "fs3:/file", "fs3:/none"], 2, "not a directory, so only one source"),
        (["cp", "/no/such/local", "fs3:/x"], 1, "/no/such/local: No such file or directory"),
        (["cp", "-", "fs3:/dir"], 2, "name the file that standard input becomes"),
        (["cp", "-r", "fs3:/dir", "-"], 2, "cannot be written to a stream"),
    ],
)
def test_cp_refusals(
    run: Run, fs: FileSystem, arguments: list[str], code: int, message: str
) -> None:
    fs.mkdir("/dir")
    fs.write_bytes("/file", b"")
    result = run(*arguments)
    assert result.code == code
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("fs3:/dir/file", "fs3:/dir/file"),
        ("fs3:/dir/file", "fs3:/dir"),
        ("fs3:/dir/file", "fs3:/dir/../dir/./file"),
        ("fs3:/dir/file", "fs3:/dir/hard"),
        ("fs3:/dir/file", "fs3:/dir/soft"),
        ("fs3:/dir/soft", "fs3:/dir/file"),
    ],
)
def test_cp_of_a_file_onto_itself_leaves_it(
    run: Run, fs: FileSystem, source: str, target: str
) -> None:
    fs.mkdir("/dir")
    fs.write_bytes("/dir/file", b"precious" * 1_000_000)
    fs.link("/dir/file", "/dir/hard")
    fs.symlink("file", "/dir/soft")
    result = run("cp", source, target)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "are the same file" in result.err
    assert fs.read_bytes("/dir/file") == b"precious" * 1_000_000


@pytest.mark.parametrize("target", ["/dir", "/dir/new", "/dir/sub", "/dir/sub/new", "/way/sub"])
def test_cp_of_a_tree_into_itself_is_refused(run: Run, fs: FileSystem, target: str) -> None:
    fs.makedirs("/dir/sub")
    fs.write_bytes("/dir/file", b"x")
    fs.symlink("/dir", "/way")
    result = run("cp", "-r", "fs3:/dir", f"fs3:{target}")
    assert (result.code, result.err) == (2, "fs3: fs3:/dir: cannot be copied into itself\n")
    assert sorted(fs.listdir("/dir")) == ["file", "sub"]


def test_cp_of_a_tree_beside_itself(run: Run, fs: FileSystem) -> None:
    fs.makedirs("/dir/sub")
    fs.write_bytes("/dir/sub/file", b"x")
    assert run("cp", "-r", "fs3:/dir", "fs3:/dir2").code == 0
    assert fs.read_bytes("/dir2/sub/file") == b"x"


def test_names_that_are_not_unicode_are_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / os.fsdecode(b"caf\xe9")).write_bytes(b"x")
    for arguments in (["cp", "-r", str(tmp_path / "tree"), "fs3:/tree"], ["cat", "/caf\udce9"]):
        result = run(*arguments)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert "a name must be UTF-8" in result.err


def test_no_arguments_show_the_help(run: Run) -> None:
    result = run()
    assert result.code == 0
    assert result.out == run("--help").out


# Failures: one line, the reason, what to do.


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["cat", "/none"], 1, "/none: No such file or directory; `fs3 ls`"),
        (["cat", "/dir"], 1, "/dir: Is a directory"),
        (["ls", "/none"], 1, "/none: No such file or directory; "),
        (["mkdir", "/dir"], 1, "/dir: File exists; "),
        (["mkdir", "/file/below"], 1, "/file/below: Not a directory; "),
        (["rm", "/dir"], 1, "/dir: Is a directory; use -r"),
        (["rm", "-r", "/"], 2, "the root cannot be removed"),
        (["mv", "/none", "/x"], 1, "/none -> /x: "),
        (["mv", "-n", "/file", "/other"], 1, "File exists; "),
        (["mv", "/file", "/other", "/none"], 2, "only one source"),
        (["cat"], 2, "Missing argument 'PATH...'; see `fs3 cat --help`"),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["ls", "--nonsense"], 2, "No such option"),
        (["cat", "fs3://host:7000/f"], 1, "names a cluster; "),
    ],
)
def test_one_clear_line(
    run: Run, fs: FileSystem, arguments: list[str], code: int, line: str
) -> None:
    fs.mkdir("/dir")
    fs.write_bytes("/file", b"")
    fs.write_bytes("/other", b"")
    result = run(*arguments)
    assert result.code == code
    assert result.err.startswith("fs3: ")
    assert line in result.err
    assert result.err.count("\n") == 1
    assert result.out == b""


def test_permission(run: Run, fs: FileSystem) -> None:
    fs.write_bytes("/secret", b"x", permissions=0o600)
    result = run("cat", "/secret", identity=Identity(1000, 1000, ()))
    assert result.code == 1
    assert result.err.startswith("fs3: /secret: Permission denied; ")


def test_no_space(run: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = cluster.connect

    def full(identity: Identity | None = None) -> FileSystem:
        fs = connect(identity)
        _ = fs.config
        cluster.data.fail_with = NoSpace.number
        return fs

    monkeypatch.setattr(cluster, "connect", full)
    result = run("cp", "-", "fs3:/f", stdin=b"x" * 100)
    assert result.code == 1
    assert "/f: write of 100 bytes at 0 failed: no space left" in result.err
    assert result.err.count("\n") == 1


def test_no_cluster_is_exit_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FS3_URL", raising=False)
    assert main(["--dir", str(tmp_path / "none"), "ls"]) == 2
    err = capsys.readouterr().err
    assert err == (
        f"fs3: no cluster runs in {tmp_path}/none; start it with `fs3 up --dir {tmp_path}/none`, "
        "or name one by --url or FS3_URL\n"
    )


@pytest.mark.parametrize("url", ["http://host:1", "fs3://host", "fs3://host:x", "fs3://host:0"])
def test_a_wrong_url_is_exit_2(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert main(["ls", "--url", url]) == 2
    assert repr(url) in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("no cluster manager answered at fs3://h:1 within 5 s; check the URL"),
        VersionMismatch("the cluster speaks protocol 9, this fs3 speaks 1; upgrade fs3"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_exit_2(
    capsys: pytest.CaptureFixture[str], error: Fs3Error
) -> None:
    def refuse(_url: str | None, _directory: str | None) -> FileSystem:
        raise error

    assert main(["df"], Settings(connect=refuse)) == 2
    assert capsys.readouterr().err == f"fs3: {error.message}\n"


def test_nobody_at_the_url_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--url", "fs3://127.0.0.1:1"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fs3: no cluster manager answers at fs3://127.0.0.1:1 (")
    assert "; check the URL, or start the cluster with `fs3 up`" in err
    assert err.count("\n") == 1


# Progress.


def test_progress_is_silent_for_a_second_and_away_from_terminals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress("quick", total=10, visible=True) as quick:
        quick.advance(10)
    with Progress("piped", total=10, visible=False) as piped:
        piped._started -= 10
        piped.advance(10)
    assert capsys.readouterr() == ("", "")


def test_progress_shows_after_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("slow", total=100, visible=True) as slow:
        slow._started -= 10
        slow.advance(50)
        slow.advance(50)
    assert slow.done == 100
    assert capsys.readouterr().out == ""
