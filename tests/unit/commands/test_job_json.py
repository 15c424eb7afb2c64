"""The JSON of a job that did not succeed: it is of that job, and its error stays the error."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.api.client import NoDisplay
from ciao_kernel.commands.job_json import reported
from ciao_kernel.errors import (
    CiaoError,
    ClusterFault,
    JobError,
    JobFailed,
    JobLost,
    JobStopped,
    NoSuchJob,
    UsageError,
)
from ciao_kernel.model import Job, JobResult, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import Where

WORKER = Replica("worker", 0)
JOB = Job("same", "local", "python", (WORKER,), 1.0, "/jobs/same")
FAR = replace(JOB, backend="kubernetes", place="team", kind_of_place="namespace", folder="/far")
RUN = replace(JOB, place="/jobs/same/run-2", folder="/jobs/same", warm_run=2)
ENDS = {JobFailed: State.FAILED, JobStopped: State.STOPPED, JobLost: State.LOST}


def status(state: State, code: int | None = None) -> Status:
    return Status(state, (ReplicaStatus(WORKER, state, exit_code=code),))


class Session:
    """Two jobs of one name, here and on a cluster; a cluster may have another one elsewhere."""

    def __init__(self, fault: CiaoError | None = None) -> None:
        self.last: JobResult | None = JobResult(replace(JOB, name="earlier"), status(State.FAILED))
        self._fault = fault

    async def find(self, name: str, where: Where) -> tuple[None, Job, Status]:
        if self._fault is not None:
            raise self._fault
        if not where.backend:
            raise UsageError(f"there are 2 jobs named {name}.")
        job = next(one for one in (JOB, FAR) if where == Where.of(one))
        return None, job, status(ENDS[JobFailed], 3 if job is JOB else 4)


def record(
    session: Any, error: JobError, found: Job | None = None, last: JobResult | None = None
) -> Any:
    """Let a job end with an error; return what is written, for options that name no backend."""

    async def work() -> JobResult:
        session.last = last or session.last
        raise error

    written: list[str] = []
    caller = commands.Caller(session, NoDisplay(), written.append, Path())
    args = argparse.Namespace(output="json", namespace="", context="", backend="")
    with pytest.raises(type(error)) as caught:
        asyncio.run(reported(work(), args, caller, found))
    assert caught.value is error
    return json.loads("".join(written))


@pytest.mark.parametrize(("job", "code"), [(JOB, 3), (FAR, 4)])
@pytest.mark.parametrize("attached", [False, True])
def test_it_is_of_the_job_that_failed_and_not_of_another_of_its_name(
    job: Job, code: int, attached: bool
) -> None:
    last = None if attached else JobResult(job, Status(State.RUNNING, ()))
    error = JobFailed("worker-0 failed.", job="same")
    got = record(Session(), error, job if attached else None, last)
    assert (got["name"], got["folder"], got["error"]) == ("same", job.files, "worker-0 failed.")
    assert [one["exit_code"] for one in got["replicas"]] == [code]


@pytest.mark.parametrize("fault", [ClusterFault("silent"), UsageError("two"), NoSuchJob("gone")])
def test_an_error_of_the_lookup_does_not_replace_that_of_the_job(fault: CiaoError) -> None:
    last = JobResult(JOB, status(State.FAILED, 5))
    got = record(Session(fault), JobFailed("it failed.", job="same"), last=last)
    assert (got["name"], got["state"], got["error"]) == ("same", "Failed", "it failed.")
    assert got["replicas"][0]["exit_code"] == 5


@pytest.mark.parametrize("kind", [JobStopped, JobLost])
@pytest.mark.parametrize("attached", [False, True])
def test_a_job_that_is_gone_keeps_its_name_its_folder_and_its_replicas(
    kind: type[JobError], attached: bool
) -> None:
    last = None if attached else JobResult(JOB, Status(State.RUNNING, ()))
    got = record(Session(NoSuchJob("gone")), kind("it is over."), JOB if attached else None, last)
    state = ENDS[kind]  # type: ignore[index]
    assert (got["name"], got["state"], got["folder"]) == ("same", state, "/jobs/same")
    assert [(one["name"], one["state"]) for one in got["replicas"]] == [("worker-0", state)]


def test_the_end_of_a_run_is_not_the_state_of_its_warm_replicas() -> None:
    last = JobResult(RUN, status(State.FAILED, 5))
    got = record(Session(), JobFailed("it failed.", job="same"), last=last)
    assert (got["folder"], got["replicas"][0]["exit_code"]) == ("/jobs/same/run-2", 5)


def test_a_failure_without_a_job_is_no_earlier_job() -> None:
    got = record(Session(), JobLost("it is lost."))
    assert (got["name"], got["state"], got["replicas"]) == ("", "Lost", [])
