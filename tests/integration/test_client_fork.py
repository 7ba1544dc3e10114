"""Forks of a connected process: what DataLoader workers are."""

import subprocess
import sys

import pytest

from deploy.local import LocalCluster

SCRIPT = """
import os, sys
import fs3

fs = fs3.connect(sys.argv[1])
fs.write_bytes("/forked", b"data")
reader = fs.open("/forked", "rb")
assert reader.read(1) == b"d"
for i in range(10):
    child = os.fork()
    if child == 0:
        assert reader.read() == b"ata"
        assert fs.read_many([("/forked", 1, 2)])[0].tobytes() == b"at"
        fs.write_bytes(f"/forked-{i}", b"child")
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert fs.read_bytes(f"/forked-{i}") == b"child"
assert reader.read() == b"ata"
print("done")
"""


@pytest.mark.cluster
def test_forked_children_work_end_and_say_nothing(local_cluster: LocalCluster) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, local_cluster.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")
