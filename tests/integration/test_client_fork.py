"""A real control plane and a fork: what DataLoader workers do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys, time
from fs3.client.routing import ManagerLink
from fs3.ids import new_incarnation

def newest(link):
    for _ in range(500):
        try:
            return link.routing().version
        except OSError:
            time.sleep(0.01)
    raise SystemExit("no routing within 5 s")

link = ManagerLink(sys.argv[1], new_incarnation())
link._watcher.start()
newest(link)
for _ in range(3):
    child = os.fork()
    if child == 0:
        mine = ManagerLink(sys.argv[1], new_incarnation())
        mine._watcher.start()
        newest(mine)
        mine.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
newest(link)
print("done")
"""


@pytest.mark.cluster
def test_a_forked_child_has_its_own_link_and_says_nothing(tmp_path: Path) -> None:
    from deploy.local import LocalCluster, Programs

    programs = Programs("tests.integration.fake_manager", "tests.integration.fake_node")
    cluster = LocalCluster(tmp_path, owner=os.getpid(), programs=programs)
    cluster.up(nodes=1)
    try:
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT, cluster.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        cluster.down()
    assert result.stdout == "done\n", result.stderr
    assert "fork" not in result.stderr
