"""A job of each framework besides TensorFlow and PyTorch, with the real libraries."""

from __future__ import annotations

import re

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State
from tests.e2e.jobs.conftest import Team
from tests.helpers import digits

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.xdist_group("training"),  # one at a time: two starve each other
]


def trains(team: Team, framework: str, cell: str, *replicas: str) -> None:
    """Run a cell on three replicas; each prints its rank, and all the same accuracy."""
    workers = sum(one.startswith("worker") for one in replicas)
    images = {framework: team.namespace.cluster.image(framework)}
    ended = team.run(f"%framework={framework}\n%worker={workers}\n{cell}", images=images)
    assert ended.error is None, ended.error
    assert ended.display.status.state is State.SUCCEEDED
    said = [ended.display.data(one).decode() for one in replicas]
    told = [re.findall(r"^rank (\d) of 3\b.*: accuracy (0\.\d+)", text, re.M) for text in said]
    assert [[rank for rank, _ in found] for found in told] == [["0"], ["1"], ["2"]], said
    (accuracy,) = {float(number) for found in told for _, number in found}
    assert accuracy > 0.8


@pytest.mark.stands_for("operators")
@pytest.mark.usefixtures("with_xgboost")
def test_a_plain_call_of_xgboosts_train_trains_one_model(team: Team) -> None:
    trains(team, "xgboost", digits.XGBOOST, "master-0", "worker-0", "worker-1")


@pytest.mark.second("operators")
@pytest.mark.usefixtures("with_jax")
def test_jax_initializes_without_arguments(team: Team) -> None:
    trains(team, "jax", digits.JAX, "worker-0", "worker-1", "worker-2")


@pytest.mark.second("operators")
@pytest.mark.usefixtures("with_paddle")
def test_paddle_initializes_without_its_launcher(team: Team) -> None:
    trains(team, "paddle", digits.PADDLE, "worker-0", "worker-1", "worker-2")


ONE_FAILS = """
import os, socket, sys, time

address = os.environ["COORDINATOR_ADDRESS"], int(os.environ["COORDINATOR_PORT"])
assert os.environ["JAX_COORDINATOR_ADDRESS"].startswith(f"{address[0]}:")
if os.environ["PROCESS_ID"] == "0":
    socket.create_server(("", address[1])).accept()
    sys.exit()
while True:
    try:
        connection = socket.create_connection(address)
        break
    except OSError:  # it does not listen yet, or has no name
        time.sleep(0.2)
connection.recv(1)
sys.exit(3)
"""


@pytest.mark.second("operators")
def test_a_jax_job_fails_with_a_worker_after_the_end_of_the_first(team: Team) -> None:
    """All workers decide. The variables alone are needed, and not JAX."""
    images = {"jax": team.namespace.cluster.image("tools")}
    ended = team.run(f"%framework=jax\n%worker=2\n{ONE_FAILS}", images=images)
    assert isinstance(ended.error, JobFailed)
    last = ended.display.status
    assert (last.state, str(last.decided_by)) == (State.FAILED, "worker-1")
    assert ended.display.state("worker-0") is State.SUCCEEDED
