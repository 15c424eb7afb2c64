"""JAX jobs on this machine, with the real JAX."""

from __future__ import annotations

import re

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State
from tests.helpers import digits
from tests.helpers.jobs import Place


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_three_workers_train_one_model_without_arguments_to_initialize(jobs: Place) -> None:
    ended = jobs.run(f"%framework=jax\n%worker=3\n{digits.JAX}")
    assert ended.error is None, ended.error
    said = [ended.log(f"worker-{index}").decode() for index in range(3)]
    told = [re.findall(r"^rank (\d) of 3: accuracy (0\.\d+)$", text, re.M) for text in said]
    assert [[rank for rank, _ in found] for found in told] == [["0"], ["1"], ["2"]], said
    (accuracy,) = {float(number) for found in told for _, number in found}
    assert accuracy > 0.8


WAITS = """
import os, sys, time
from pathlib import Path

if os.environ["PROCESS_ID"] == "0":
    Path("first").touch()
else:
    while not Path("first").exists():
        time.sleep(0.01)
    time.sleep(1)
    sys.exit(CODE)
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_waits_for_all_its_workers(code: int, jobs: Place) -> None:
    """worker-0 decides nothing by itself, not even after the time that others get to end."""
    text = f"%framework=jax\n%worker=2\n{WAITS.replace('CODE', str(code))}"
    ended = jobs.run(text, linger=0.0)
    assert isinstance(ended.error, JobFailed) if code else ended.error is None
    last = ended.display.status
    assert last.state is (State.FAILED if code else State.SUCCEEDED)
    assert [one.exit_code for one in last.replicas] == [0, code]


FAILS = """
import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
rank = jax.process_index()
process_allgather(jax.numpy.array(rank))
if rank == BAD:
    raise ValueError("bad shard")
process_allgather(jax.numpy.array(rank))
"""


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(200)  # JAX's own barrier waits for 300 seconds
@pytest.mark.parametrize("bad", [0, 1])
def test_a_worker_that_fails_does_not_wait_for_the_others(bad: int, jobs: Place) -> None:
    ended = jobs.run(f"%framework=jax\n%worker=2\n{FAILS.replace('BAD', str(bad))}")
    assert isinstance(ended.error, JobFailed)
    last = ended.display.status
    assert (last.state, str(last.decided_by)) == (State.FAILED, f"worker-{bad}")
    assert {str(one.replica): one.exit_code for one in last.replicas}[f"worker-{bad}"] == 1
    assert ended.log(f"worker-{bad}").decode().endswith("ValueError: bad shard\n")
