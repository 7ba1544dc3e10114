"""The client and the file commands against real servers: processes, forks, restarts, kills."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

import fs3
from deploy.local import LocalCluster
from fs3.client.filesystem import FileSystem

pytestmark = pytest.mark.cluster


@pytest.fixture
def root(cluster_fs: FileSystem) -> Iterator[str]:
    path = f"/client-{uuid.uuid4().hex}"
    cluster_fs.mkdir(path)
    yield path
    cluster_fs.remove_tree(path)


def run(cluster: LocalCluster, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
    result = subprocess.run(
        [sys.executable, "-m", "fs3.cli.main", "--dir", str(cluster.directory), *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stdout, result.stderr.decode()


def python(script: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


# Commands.


def test_commands_move_a_tree_there_and_back(
    local_cluster: LocalCluster, root: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "big").write_bytes(np.random.default_rng(0).bytes(20_000_000))
    for i in range(50):
        (source / f"sub/{i}").write_bytes(b"%d" % i)
    assert run(local_cluster, "cp", "-r", str(source), f"fs3:{root}/copy") == (0, b"", "")
    code, out, _ = run(local_cluster, "ls", f"{root}/copy/sub")
    assert (code, len(out.splitlines())) == (0, 50)
    assert run(local_cluster, "cp", "-r", f"fs3:{root}/copy", f"{tmp_path}/back")[0] == 0
    for path in source.rglob("*"):
        if path.is_file():
            back = tmp_path / "back" / path.relative_to(source)
            assert back.read_bytes() == path.read_bytes(), path
    data = np.random.default_rng(1).bytes(3_000_000)
    assert run(local_cluster, "cp", "-", f"fs3:{root}/in", stdin=data)[0] == 0
    assert run(local_cluster, "cat", f"{root}/in")[1] == data
    assert run(local_cluster, "rm", "-r", f"{root}/copy")[0] == 0
    code, out, err = run(local_cluster, "cat", f"{root}/copy/big")
    assert (code, out) == (1, b"")
    assert err.startswith(f"fs3: {root}/copy/big: No such file or directory; ")


def test_a_command_that_reads_stops_when_its_reader_does(
    local_cluster: LocalCluster, cluster_fs: FileSystem, root: str
) -> None:
    cluster_fs.write_bytes(f"{root}/f", bytes(30_000_000))
    command = (
        f"{sys.executable} -m fs3.cli.main --url {local_cluster.url} cat {root}/f | head -c 10"
    )
    result = subprocess.run(["bash", "-c", command], capture_output=True, timeout=30, check=False)
    assert (result.stdout, result.stderr) == (bytes(10), b"")


# Connecting.


def test_the_environment_names_the_cluster(local_cluster: LocalCluster, root: str) -> None:
    script = f"import fs3; fs = fs3.connect(); fs.write_bytes('{root}/e', b'x'); print(fs.url)"
    assert python(script, FS3_URL=local_cluster.url) == f"{local_cluster.url}\n"
    directory = str(local_cluster.directory)
    assert python(script, FS3_URL="", FS3_DIR=directory) == f"{local_cluster.url}\n"


def test_connect_starts_a_cluster_when_nothing_is_configured(tmp_path: Path) -> None:
    script = (
        "import fs3, warnings\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    fs = fs3.connect()\n"
        "assert 'a local one is started' in str(said[0].message)\n"
        "fs.write_text('/hello', 'world')\n"
    )
    home = {"HOME": str(tmp_path), "FS3_URL": "", "FS3_DIR": ""}
    cluster = LocalCluster(tmp_path / ".local/share/fs3")
    try:
        python(script, **home)
        again = "import fs3; print(fs3.connect().read_text('/hello'))"
        assert python(again, **home) == "world\n"
    finally:
        cluster.down()


async def test_connect_async(local_cluster: LocalCluster, root: str) -> None:
    async with await fs3.connect_async(local_cluster.url) as fs:
        await fs.write_bytes(f"{root}/f", b"x")
        assert await fs.read_bytes(f"{root}/f") == b"x"


def test_workers_of_a_data_loader(cluster_fs: FileSystem, root: str) -> None:
    payload = np.random.default_rng(0).bytes(64 * 1000)
    cluster_fs.write_bytes(f"{root}/f", payload)

    class Samples(Dataset[Any]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> Any:
            (part,) = cluster_fs.read_many([(f"{root}/f", index * 1000, 1000)])
            return part

    loader = DataLoader(Samples(), batch_size=8, num_workers=2, timeout=60)
    assert b"".join(batch.numpy().tobytes() for batch in loader) == payload
    assert cluster_fs.read_bytes(f"{root}/f") == payload


# Failures.


def test_a_lost_storage_node_costs_no_error(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", owner=os.getpid())
    cluster.up(nodes=3, replicas=2)
    try:
        with fs3.connect(cluster.url) as fs:
            _read_and_write_while_killing(fs, cluster)
    finally:
        cluster.down()


def _read_and_write_while_killing(fs: FileSystem, cluster: LocalCluster) -> None:
    written: dict[str, bytes] = {}
    stop = threading.Event()
    failures: list[BaseException] = []
    longest = 0.0

    def load() -> None:
        nonlocal longest
        random = np.random.default_rng(0)
        try:
            while not stop.is_set():
                path, data = f"/{len(written)}", random.bytes(500_000)
                started = time.monotonic()
                fs.write_bytes(path, data)
                written[path] = data
                assert fs.read_bytes(path) == data
                longest = max(longest, time.monotonic() - started)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    time.sleep(1.0)
    cluster.kill("node-2", number=signal.SIGKILL)
    time.sleep(3.0)
    stop.set()
    thread.join()
    assert failures == []
    assert len(written) > 10
    for path, data in written.items():
        assert fs.read_bytes(path) == data, path
    assert longest < 10.0


def test_every_acknowledged_byte_survives_kill_9_of_everything(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", owner=os.getpid())
    cluster.up(nodes=3, replicas=2)
    try:
        contents = {f"/d/{i}": np.random.default_rng(i).bytes(i * 7_919) for i in range(40)}
        with fs3.connect(cluster.url) as fs:
            fs.mkdir("/d")
            for path, data in contents.items():
                fs.write_bytes(path, data)
            fs.rename("/d/3", "/d/moved")
            contents["/d/moved"] = contents.pop("/d/3")
        cluster.kill(number=signal.SIGKILL)
        cluster.up()
        with fs3.connect(cluster.url) as fs:
            assert {f"/d/{name}" for name in fs.listdir("/d")} == set(contents)
            for path, data in contents.items():
                assert fs.read_bytes(path) == data, path
    finally:
        cluster.down()
