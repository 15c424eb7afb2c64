"""The end of a PyTorchJob of several replicas."""

from __future__ import annotations

import pytest

from ciao_kernel.model import State
from tests.e2e.jobs.conftest import Team
from tests.helpers.slow_torchrun import SEND_AND_RECEIVE, SLOW


@pytest.mark.second("operators")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("training")  # one at a time: two starve each other
@pytest.mark.usefixtures("with_frameworks")
def test_the_master_ends_after_the_others_have_read_its_store(team: Team) -> None:
    (team.folder / "sitecustomize.py").write_text(SLOW)
    header = "%framework=pytorch\n%worker=2\n%files=sitecustomize.py\n%envvar=PYTHONPATH=/ciao\n"
    images = {"pytorch": team.namespace.cluster.image("pytorch")}
    ended = team.run(header + SEND_AND_RECEIVE, images=images)
    assert ended.error is None, ended.error
    assert ended.display.status.state is State.SUCCEEDED
    logs = [ended.display.data(one) for one in ("master-0", "worker-0", "worker-1")]
    assert [log.count(b"says that it has ended") for log in logs] == [0, 1, 1]
    assert all(word not in log for log in logs for word in (b"Error", b"Traceback", b"Connection"))


LINES = """
import os, sys

rank = os.environ["LOCAL_RANK"]
for number in range(300):
    print("rank", rank, "says", number, "x" * 60)
    print("rank", rank, "warns", number, "x" * 60, file=sys.stderr)
"""


@pytest.mark.second("operators")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("training")
@pytest.mark.usefixtures("with_frameworks")
def test_lines_of_two_processes_of_one_pod_stay_whole(team: Team) -> None:
    images = {"pytorch": team.namespace.cluster.image("pytorch")}
    ended = team.run("%framework=pytorch\n%nprocPerNode=2\n" + LINES, images=images)
    assert ended.error is None, ended.error
    lines = ended.display.data("master-0").decode().splitlines()
    for rank in (0, 1):
        for word in ("says", "warns"):
            text = f"[{rank}] rank {rank} {word}"
            said = [line for line in lines if line.startswith(text)]
            assert said == [f"{text} {number} {'x' * 60}" for number in range(300)]
