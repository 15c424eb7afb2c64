"""XGBoost jobs on this machine, with the real XGBoost."""

from __future__ import annotations

import re

import pytest

from ciao_kernel.delivery.output import results
from ciao_kernel.errors import JobFailed
from ciao_kernel.model import Replica, State
from tests.helpers import digits
from tests.helpers.jobs import Place

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(400)]
MASTER = Replica("master", 0)
REPLICAS = ("master-0", "worker-0", "worker-1")


def test_a_plain_call_of_train_trains_one_model(jobs: Place) -> None:
    ended = jobs.run(f"%framework=xgboost\n%worker=2\n{digits.XGBOOST}")
    assert ended.error is None, ended.error
    said = [ended.log(replica).decode() for replica in REPLICAS]
    line = r"^rank (\d) of 3 is \1: accuracy (0\.\d+), model (\w+)$"
    told = [re.findall(line, text, re.M) for text in said]
    assert [[rank for rank, _, _ in found] for found in told] == [["0"], ["1"], ["2"]], said
    ((accuracy, _),) = {found[0][1:] for found in told}
    assert float(accuracy) > 0.8
    assert not any(word in text for text in said for word in ("Warning", "WARNING", "Traceback"))


FAILS = """
import os
import xgboost as xgb

def train():
    if os.environ["RANK"] == "1":
        raise ValueError("bad shard")
    xgb.collective.broadcast("waits for rank 1", 1)

train()
"""


@pytest.mark.second("packages")
def test_a_failure_has_the_cells_lines_and_none_of_the_runner(jobs: Place) -> None:
    ended = jobs.run(f"%framework=xgboost\n%worker=2\n{FAILS}")
    assert isinstance(ended.error, JobFailed)
    last = ended.display.status
    assert (last.state, str(last.decided_by)) == (State.FAILED, "worker-0")
    assert [one.exit_code for one in last.replicas if str(one.replica) == "worker-0"] == [1]
    trace = ended.log("worker-0").decode().splitlines()
    first = trace.index("Traceback (most recent call last):")
    frames = [line for line in trace[first:] if line.startswith("  File ")]
    assert [re.sub(r'".*/', '"', line) for line in frames] == [
        '  File "ciao_cell.py", line 12, in <module>',
        '  File "ciao_cell.py", line 9, in train',
    ]
    assert trace[-1] == "ValueError: bad shard"


ENDS_EARLY = """
import atexit, os
import xgboost as xgb

atexit.register(print, "at exit")
loss = 0.25
xgb.collective.broadcast("together", 0)
if os.environ["RANK"] == "0":
    raise SystemExit(3)
xgb.collective.broadcast("waits for rank 0", 0)
"""


@pytest.mark.second("packages")
def test_a_master_that_fails_ends_with_its_code_and_gives_its_values(jobs: Place) -> None:
    ended = jobs.run(f"%framework=xgboost\n%worker=1\n%output=loss\n{ENDS_EARLY}")
    assert isinstance(ended.error, JobFailed)
    last = ended.display.status
    assert (str(last.decided_by), last.replicas[0].exit_code) == ("master-0", 3)
    said = ended.log("master-0").decode()
    assert said.endswith("at exit\n")
    assert "Stack trace" not in said
    assert (results.folder(ended.job.files, MASTER) / "loss.json").read_text() == "0.25"


ENDS = """
import os, sys, time
import xgboost as xgb

rank = os.environ["RANK"]
xgb.collective.broadcast("together", 0)
if rank == "1":
    time.sleep(1)
print("rank", rank, "ends", sys.argv[1:], __name__, __file__ == sys.argv[0])
sys.exit()
"""


@pytest.mark.second("packages")
def test_the_master_ends_after_the_others(jobs: Place) -> None:
    ended = jobs.run(f"%framework=xgboost\n%worker=2\n%args=--depth 3\n{ENDS}", linger=0.0)
    assert ended.error is None, ended.error
    for rank, replica in enumerate(REPLICAS):
        text = f"rank {rank} ends ['--depth', '3'] __main__ True\n"
        said = ended.log(replica).decode()
        assert said.endswith(text)  # rank 0 also says which rank it got
        assert "Traceback" not in said


OWN = """
import os
import xgboost as xgb
from xgboost.tracker import RabitTracker

rank = int(os.environ["RANK"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    tracker = RabitTracker(n_workers=2, host_ip=host, port=port, sortby="task")
    tracker.start()
options = {"dmlc_tracker_uri": host, "dmlc_tracker_port": port, "dmlc_task_id": str(rank)}
with xgb.collective.CommunicatorContext(**options, dmlc_retry=60):
    print("rank", xgb.collective.get_rank(), "of", xgb.collective.get_world_size())
if rank == 0:
    tracker.wait_for(60)
"""


@pytest.mark.second("packages")
def test_a_program_with_a_communicator_of_its_own_keeps_it(jobs: Place) -> None:
    ended = jobs.run(f"%framework=xgboost\n%worker=1\n{OWN}")
    assert ended.error is None, ended.error
    assert b"rank 0 of 2\n" in ended.log("master-0")
    assert b"rank 1 of 2\n" in ended.log("worker-0")
