"""Verbs without a name choose a job, also where another one has its name or does not answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.api.client import NoDisplay
from ciao_kernel.commands import attach, tensorboard
from ciao_kernel.commands.shared_arguments import only_running
from ciao_kernel.errors import ClusterFault, NoSuchJob, UsageError
from ciao_kernel.model import Job, JobResult, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import HERE, Where
from ciao_kernel.session import lookup
from ciao_kernel.session.owner import current_user

WORKER = Replica("worker", 0)
OWNER = f"{current_user()} kernel 1"
LOCAL = Job("same", "local", "python", (WORKER,), 1.0, "/jobs/same/work", owner=OWNER)
FAR = replace(LOCAL, backend="kubernetes", place="team", kind_of_place="namespace", created=2.0)
RUNNING = Status(State.RUNNING, (ReplicaStatus(WORKER, State.RUNNING),), since=time.time())


class Backend:
    """A backend with some running jobs, or one that does not answer."""

    def __init__(self, name: str, *found: Job, silent: bool = False) -> None:
        self.name, self._found, self._silent = name, found, silent

    async def jobs(self, where: Where) -> list[tuple[Job, Status]]:
        if self._silent:
            raise ClusterFault("the cluster does not answer.")
        if where.is_explicit and self.name == "local":
            return []
        return [(one, RUNNING) for one in self._found]

    async def find(self, name: str, where: Where) -> tuple[Job, Status]:
        for job, status in await self.jobs(where):
            if job.name == name:
                return job, status
        raise NoSuchJob(f"no {name}")


class Session:
    """As much of a session as the verbs ask for; it notes the jobs that they follow or show."""

    warm = registry = settings = None
    last: JobResult | None = None

    def __init__(self, *backends: Backend) -> None:
        self._backends = backends
        self.chosen: list[tuple[str, Job]] = []
        self.board = self

    async def jobs(self, faults: Any = None, where: Where = HERE) -> list[tuple[Job, Status]]:
        return await lookup.jobs(self._backends, where, faults)  # type: ignore[arg-type]

    async def find(self, name: str, where: Where) -> Any:
        return await lookup.find(self._backends, name, where)  # type: ignore[arg-type]

    def backend(self, name: str) -> Backend:
        return next(one for one in self._backends if one.name == name)

    def owns(self, job: Job) -> bool:
        return True

    async def attach(self, name: str, *_: Any, found: tuple[Backend, Job], **__: Any) -> JobResult:
        self.chosen.append((found[0].name, found[1]))
        return JobResult(found[1], RUNNING)

    def check(self) -> None:
        """Do nothing: TensorBoard is installed."""

    async def show(self, found: list[tuple[Backend, Job]], *_: Any) -> None:
        self.chosen += [(backend.name, job) for backend, job in found]

    def run(self, verb: Any, *words: str) -> list[tuple[str, Job]]:
        args = commands.parse([verb.__name__.rpartition(".")[2], *words], print)
        session: Any = self
        asyncio.run(verb.run(args, commands.Caller(session, NoDisplay(), print, Path())))
        return self.chosen


def test_attach_follows_the_job_that_it_has_chosen() -> None:
    both = Backend("kubernetes", FAR), Backend("local", LOCAL)
    assert Session(*both).run(attach) == [("kubernetes", FAR)]
    assert Session(*both).run(attach, "-n", "team") == [("kubernetes", FAR)]
    again = Session(*both)
    again.last = JobResult(LOCAL, RUNNING)
    assert again.run(attach) == [("local", LOCAL)]


def test_a_replica_behind_the_name_is_followed() -> None:
    assert Session(Backend("local", LOCAL)).run(attach, "same/worker-0") == [("local", LOCAL)]
    with pytest.raises(UsageError, match="same has no replica worker-7"):
        Session(Backend("local", LOCAL)).run(attach, "same/worker-7")


def test_tensorboard_shows_all_jobs_that_have_it() -> None:
    far, local = (replace(one, header="%tensorboard=logs") for one in (FAR, LOCAL))
    both = Backend("kubernetes", far, replace(FAR, name="other")), Backend("local", local)
    assert Session(*both).run(tensorboard) == [("local", local), ("kubernetes", far)]


def test_a_replica_of_one_of_the_shown_jobs_is_enough() -> None:
    small = replace(FAR, name="small")
    large = replace(FAR, name="large", replicas=(WORKER, Replica("worker", 1)))
    both = Backend("kubernetes", small, large)
    for names in (["large", "small"], ["small", "large"]):
        shown = Session(both).run(tensorboard, *names, "--replica", "worker-1")
        assert [job.name for _, job in shown] == names
    with pytest.raises(UsageError, match="none of the jobs large, small has a replica worker-2"):
        Session(both).run(tensorboard, "large", "small", "--replica", "worker-2")
    with pytest.raises(UsageError, match="small has no replica worker-1"):
        Session(both).run(tensorboard, "small", "--replica", "worker-1")


@pytest.mark.parametrize("place", [HERE, Where(namespace="team")])
def test_a_cluster_that_does_not_answer_may_have_the_running_job(place: Where) -> None:
    session: Any = Session(Backend("kubernetes", silent=True), Backend("local"))
    with pytest.raises(ClusterFault, match="does not answer"):
        asyncio.run(only_running(session, place))
    session = Session(Backend("kubernetes", silent=True), Backend("local", LOCAL))
    if place is HERE:
        assert asyncio.run(only_running(session, place)) == LOCAL


def test_a_job_that_has_existed_is_no_other_one() -> None:
    """A job that was stopped on a cluster is gone: no job with a similar name is offered."""

    class Left(Backend):
        async def find(self, name: str, where: Where) -> tuple[Job, Status]:
            existed = name == "some"
            raise NoSuchJob(f"{name} is gone.", "Look elsewhere.", existed=existed)

    def hint(name: str, *backends: Backend) -> str:
        with pytest.raises(NoSuchJob) as caught:
            asyncio.run(lookup.find(backends, name, HERE))  # type: ignore[arg-type]
        assert caught.value.message == f"{name} is gone."
        return caught.value.hint

    cluster, local = Left("kubernetes"), Backend("local", LOCAL)
    assert hint("some", cluster, local) == "Look elsewhere."
    assert hint("sane", cluster, local) == "Did you mean same? Look elsewhere."
    assert hint("some", Backend("other"), cluster, local) == "Look elsewhere."
