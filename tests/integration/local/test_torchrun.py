"""The end of a PyTorch job of several replicas, with the real torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.jobs import Place
from tests.helpers.slow_torchrun import SEND_AND_RECEIVE, SLOW


@pytest.mark.second("operators")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_master_ends_after_the_others_have_read_its_store(jobs: Place, tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    header = f"%framework=pytorch\n%worker=2\n%envvar=PYTHONPATH={tmp_path / 'slow'}\n"
    ended = jobs.run(header + SEND_AND_RECEIVE)
    assert ended.error is None
    logs = [ended.log(one) for one in ("master-0", "worker-0", "worker-1")]
    assert [log.count(b"says that it has ended") for log in logs] == [0, 1, 1]
    # torch may warn that it finds no name for an address, where no name server answers.
    assert all(word not in log for log in logs for word in (b"Error", b"Traceback", b"Connection"))


LINES = """
import os, sys

print("hidden", os.environ["HIDDEN"])
for number in range(2000):
    print("rank", os.environ["RANK"], "says", number, "x" * 60)
    print("rank", os.environ["RANK"], "warns", number, "x" * 60, file=sys.stderr)
"""


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_lines_of_two_processes_of_one_replica_stay_whole(jobs: Place, tmp_path: Path) -> None:
    """And the environment's own sitecustomize still runs in each of them."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import os\nos.environ['HIDDEN'] = 'seen'\n")
    (tmp_path / "scratch").mkdir()
    header = "%framework=pytorch\n%nprocPerNode=2\n"
    header += f"%envvar=PYTHONPATH={tmp_path / 'own'} TMPDIR={tmp_path / 'scratch'}\n"
    ended = jobs.run(header + LINES)
    assert ended.error is None
    lines = ended.log("master-0").decode().splitlines()
    assert lines.count("hidden seen") == 2
    for word in ("says", "warns"):
        for rank in (0, 1):
            said = [line for line in lines if line.startswith(f"rank {rank} {word} ")]
            assert said == [f"rank {rank} {word} {number} {'x' * 60}" for number in range(2000)]
    assert not list((tmp_path / "scratch").glob("ciao-*"))
