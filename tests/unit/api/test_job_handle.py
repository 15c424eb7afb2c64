"""A job as an object: what it tells of a job of this machine, by its records alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.api.client import Client, Host
from ciao_kernel.api.job_handle import JobHandle
from ciao_kernel.api.lookup import find, find_all
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.config import Settings
from ciao_kernel.delivery.output import results
from ciao_kernel.errors import BackendError, JobError, JobFailed, JobStopped, NoSuchJob, UsageError
from ciao_kernel.model import State
from ciao_kernel.model.queries import HERE, Where

FORKED = """
import multiprocessing, sys
from pathlib import Path
from ciao_kernel.api.client import Client, Host
from ciao_kernel.api.lookup import find_all
from ciao_kernel.config import Settings
from ciao_kernel.model.queries import HERE

settings = Settings(storage=Path(sys.argv[1]))
client = Client(lambda: Host(lambda: settings, print))
[job] = find_all(client, HERE, mine=False)

def look(_):
    [again] = find_all(client, HERE, mine=False)
    return f"{job.state} {again.state}"

with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(look, range(4)), job.state)
"""

NAMED = """
import ciao_kernel as ciao
from ciao_kernel.errors import UsageError

print(ciao.job("a", backend="local").name, len(ciao.jobs(mine=False, backend="local")))
for ask in (lambda: ciao.job("a", backend="far"), lambda: ciao.jobs(backend="far")):
    try:
        ask()
    except UsageError as error:
        print(error.message)
"""


class Machine:
    """Ended jobs of this machine, as a supervisor leaves them, and what asks for them."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        settings = Settings(storage=storage)
        self.prepared: list[Exception] = []
        self.client = Client(lambda: Host(lambda: settings, self.prepared.append))

    def end(self, uid: str, logs: dict[str, str], state: str = "Succeeded") -> JobHandle:
        """Make the job ``a``; return it."""
        folder = Folder(self.storage / "jobs" / "a")
        folder.logs.mkdir(parents=True)
        asked: dict[str, Any] = {
            "id": uid, "name": "a", "framework": "tensorflow", "header": "%output=best",
            "created": 1.0, "by": "me", "detached": False, "workdir": str(folder.path / "work"),
            "program": "p", "grace": 1.0, "owner": None, "clean": "running", "deadline": None,
        }  # fmt: skip
        replicas, states = [], []
        for name, text in logs.items():
            role, _, index = name.rpartition("-")
            replicas.append({"role": role, "index": int(index), "command": ["x"], "env": {}})
            states.append(
                {"name": name, "state": state, "since": 61.0, "exit_code": 0, "reason": ""}
            )
            folder.log(name).write_text(text)
        folder.write_job({**asked, "replicas": replicas})
        folder.write_status(
            {
                "supervisor": {"pid": 2**22 + 1, "birth": "1"},
                "state": state,
                "since": 61.0,
                "reason": "",
                "message": "",
                "decided_by": None,
                "settled": True,
                "ended": True,
                "replicas": states,
            }
        )
        return find(self.client, "a", HERE)

    def remove(self) -> None:
        shutil.rmtree(self.storage / "jobs" / "a")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_progress_is_that_of_the_replicas_that_train(machine: Machine) -> None:
    logs = {
        "chief-0": "step 75/100\n",
        "worker-0": "step 50/100\n",
        "ps-0": "step 0/100\n",
        "evaluator-0": "step 2/100\n",
    }
    done = machine.end("a-1", logs).progress
    assert done is not None
    assert (done.share, done.left) == (0.5, 60.0)


def test_the_metrics_of_an_ended_job_have_its_last_line(machine: Machine) -> None:
    job = machine.end("a-1", {"worker-0": "step 1 loss 0.5\nstep 2 loss 0.4"})
    assert job.metrics["loss"]["worker-0"].last == 0.4


@pytest.mark.parametrize("what", ["result", "progress", "metrics"])
def test_nothing_of_a_later_job_is_taken_for_its_own(machine: Machine, what: str) -> None:
    old = machine.end("a-1", {"worker-0": "step 1/10\n"})
    getattr(old, what)
    machine.remove()
    new = machine.end("a-2", {"worker-0": "step 9/10\n"})
    if what != "metrics":  # those of an ended job are kept
        with pytest.raises(NoSuchJob, match="a later job has its name"):
            getattr(old, what)
    assert isinstance(new.result, results.Results)
    assert new.progress.share == 0.9  # type: ignore[union-attr]


def test_a_wait_for_a_job_that_was_deleted_after_its_end_tells_the_end(machine: Machine) -> None:
    done = machine.end("a-1", {"worker-0": ""})
    machine.remove()
    assert done.wait() is State.SUCCEEDED
    stopped = machine.end("a-2", {"worker-0": ""}, "Stopped")
    machine.remove()
    with pytest.raises(JobStopped, match=r"a is over: Stopped\."):
        stopped.wait()
    failed = machine.end("a-3", {"worker-0": "Traceback: bad\n"}, "Failed")
    with pytest.raises(JobFailed) as first:
        failed.wait()
    machine.remove()
    with pytest.raises(JobFailed) as again:
        failed.wait()
    assert again.value is first.value
    assert machine.prepared.count(first.value) == 2
    assert failed.wait(check=False) is State.FAILED


@pytest.mark.parametrize("state", ["Stopped", "Failed"])
@pytest.mark.parametrize("later", [False, True])
def test_the_error_of_a_deleted_job_names_no_files(
    machine: Machine, state: str, later: bool
) -> None:
    job = machine.end("a-1", {"worker-0": ""}, state)
    for _ in range(2):
        with pytest.raises(JobError) as caught:
            job.wait()
        assert str(machine.storage / "jobs" / "a") in caught.value.hint
    machine.remove()
    if later:
        machine.end("a-2", {"worker-0": ""})
    with pytest.raises(JobError) as caught:
        job.wait()
    assert caught.value.hint == "The job was deleted since then, with its files and logs."


def test_a_wait_of_no_seconds_tells_the_end_of_a_job_that_is_over(machine: Machine) -> None:
    done = machine.end("a-1", {"worker-0": ""})
    assert done.wait(timeout=0) is State.SUCCEEDED
    assert done.wait(timeout=0) is State.SUCCEEDED
    machine.remove()
    failed = machine.end("a-2", {"worker-0": "Traceback: bad\n"}, "Failed")
    for _ in range(2):
        with pytest.raises(JobFailed):
            failed.wait(timeout=0)
    assert failed.wait(timeout=0, check=False) is State.FAILED


def test_jobs_of_a_namespace_are_no_empty_list_without_a_cluster(machine: Machine) -> None:
    machine.end("a-1", {"worker-0": ""})
    for place in (Where(namespace="team"), Where(context="staging")):
        with pytest.raises(BackendError, match="no cluster is configured here") as caught:
            find_all(machine.client, place, mine=False)
        assert "leave --namespace and --context out" in caught.value.hint
        with pytest.raises(NoSuchJob, match="no cluster is configured here"):
            find(machine.client, "a", place)
    assert len(find_all(machine.client, HERE, mine=False)) == 1
    assert len(find_all(machine.client, Where(everywhere=True), mine=False)) == 1


def test_a_forked_process_asks_by_itself(machine: Machine, tmp_path: Path) -> None:
    machine.end("a-1", {"worker-0": ""})
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    told = ["Succeeded Succeeded"] * 4
    assert (done.stdout, done.stderr) == (f"{told} Succeeded\n", "")


def test_a_job_is_selected_by_its_backend(machine: Machine, tmp_path: Path) -> None:
    machine.end("a-1", {"worker-0": ""})
    command = [sys.executable, "-c", NAMED]
    environ = {**os.environ, "CIAO_STORAGE": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.stdout == "a 1\n" + "no backend far is available.\n" * 2, done.stderr


def test_the_hint_for_jobs_of_one_name_is_python() -> None:
    class Twice:
        async def find(self, name: str, where: Where) -> None:
            raise UsageError(f"there are 2 jobs named {name}.", "Write a --backend local.")

        def run(self, work: Any) -> Any:
            return asyncio.run(work(self))

    client: Any = Twice()
    with pytest.raises(UsageError, match="there are 2 jobs named a") as caught:
        find(client, "a", HERE)
    assert 'ciao_kernel.job("a", backend="local")' in caught.value.hint
    with pytest.raises(UsageError) as caught:
        find(client, "a", Where(backend="far"))  # the hint has the backends that are there
    assert caught.value.hint == "Write a --backend local."
