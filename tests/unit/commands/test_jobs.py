"""The list of jobs: how long each took, its newest number, and which jobs are left out."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ciao_kernel import commands
from ciao_kernel.commands import jobs
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import Where
from ciao_kernel.session.owner import current_user

DAY = 86_400


class Jobs:
    """A session that has some jobs."""

    def __init__(self, *found: tuple[Job, Status]) -> None:
        self.found = list(found)
        self.written: list[str] = []

    async def jobs(self, faults: object, where: Where) -> list[tuple[Job, Status]]:
        return self.found

    def owns(self, job: Job) -> bool:
        return True

    def list(self, *words: str) -> str:
        self.written.clear()
        args = commands.parse(["jobs", *words], self.written.append)
        caller = commands.Caller(self, None, self.written.append, Path())  # type: ignore[arg-type]
        asyncio.run(jobs.run(args, caller))
        return "".join(self.written)


def job(name: str, took: float, *, ended: float | None = None, log: str = "") -> tuple[Job, Status]:
    """A job that ended some seconds ago, or still runs."""
    worker = Replica("worker", 0)
    now = time.time()
    created = now - took - (ended or 0)
    state, since = (State.RUNNING, created) if ended is None else (State.SUCCEEDED, now - ended)
    one = ReplicaStatus(worker, state, since, log=log)
    made = Job(name, "local", "pytorch", (worker,), created, owner="ada@laptop")
    return made, Status(state, (one,), since, settled=ended is not None)


def test_a_row_says_how_long_it_took_and_its_newest_number(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text("x" * 9000 + "\nstep 1 lr 0.1 loss 5\nstep 2 lr 0.1 loss 0.31251\nnote: done\n")
    heads, running, ended = (
        Jobs(job("a", 3965, log=str(log)), job("b", 80, ended=7)).list().splitlines()
    )
    assert heads.split()[5:] == ["AGE", "TOOK", "LAST", "OWNER"]
    assert "1h 6m" in running
    assert "loss 0.3125" in running
    assert "1m 20s" in ended
    assert ended.split()[-2:] == ["–", "ada@laptop"]


def test_a_row_fits_the_output_of_a_cell() -> None:
    me = current_user()
    mine, status = job("tensorflow-qfhcb", 26, ended=600)
    workers = tuple(ReplicaStatus(Replica("worker", at), State.SUCCEEDED) for at in range(3))
    mine = replace(mine, framework="tensorflow", owner=f"{me} kernel 23059")
    ended = (mine, replace(status, replicas=workers))
    kept = (replace(mine, detached=True), ended[1])
    theirs = (replace(mine, owner="ada@elsewhere kernel 7", detached=True), ended[1])
    running = (mine, job("a", 5)[1])
    lines = Jobs(ended, kept, theirs, running).list().splitlines()[1:]
    assert [line.split("  ")[-1].strip() for line in lines] == [
        "kernel 23059",
        "detached",
        "ada@elsewhere kernel 7, detached",
        "kernel 23059",
    ]
    assert [line.split()[4] for line in lines] == ["3", "3", "3", "1/1"]
    assert len(lines[0]) < 100
    (record, *_) = json.loads(Jobs(kept).list("-o", "json"))
    assert (record["owner"], record["detached"]) == (f"{me} kernel 23059", True)


def test_a_job_in_a_queue_is_listed_as_such_and_its_record_has_state_and_reason() -> None:
    made, _ = job("a", 5)
    waits = Jobs((made, Status(State.PENDING, (), reason="Queued")))
    assert waits.list().splitlines()[1].split()[:4] == ["a", "pytorch", "local", "Queued"]
    (record,) = json.loads(waits.list("-o", "json"))
    assert (record["state"], record["reason"]) == ("Pending", "Queued")


def test_a_record_has_the_number_of_tries_and_who_decided() -> None:
    made, status = job("a", 5, ended=3)
    (record,) = json.loads(Jobs((made, status)).list("-o", "json"))
    assert (record["tries"], record["decided_by"]) == (1, None)
    status = replace(status, tries=3, decided_by=Replica("worker", 0))
    (record,) = json.loads(Jobs((made, status)).list("-o", "json"))
    assert (record["tries"], record["decided_by"]) == (3, "worker-0")


def test_jobs_that_ended_long_ago_are_counted() -> None:
    several = Jobs(job("old", 5, ended=DAY + 60), job("new", 5, ended=DAY - 60), job("now", 5))
    shown = several.list()
    assert [line.split()[0] for line in shown.splitlines()] == ["NAME", "new", "now", "1"]
    assert shown.endswith("1 job ended more than a day ago: `ciao jobs --all` lists all.\n")
    assert [line.split()[0] for line in several.list("-a").splitlines()[1:]] == [
        "old",
        "new",
        "now",
    ]
    assert len(json.loads(several.list("-o", "json"))) == 3


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], "There are no jobs.\n"),
        ([job("a", 1, ended=5)], "There are no running jobs; 1 job has ended.\n"),
        (
            [job("a", 1, ended=5), job("b", 1, ended=DAY * 2)],
            "There are no running jobs; 2 jobs have ended.\n",
        ),
    ],
)
def test_an_empty_list_says_why(found: list[tuple[Job, Status]], text: str) -> None:
    assert Jobs(*found).list("--running") == text
