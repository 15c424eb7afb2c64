"""The job of `ciao stacks`, `top` and `profile` without a name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.commands import profile, stacks, top
from ciao_kernel.errors import BackendError, NoSuchJob, UsageError
from ciao_kernel.model import Job, Replica, State, Status
from ciao_kernel.model.queries import HERE, Where
from ciao_kernel.session import lookup

ONE = Replica("worker", 0)
HERE_ENDED = Job("mnist", "local", "python", (ONE,), 1.0, "/home/ada/.ciao/mnist")
VERBS = {"stacks": stacks, "top": top, "profile": profile}


def of_cluster(namespace: str, context: str = "") -> Job:
    return Job(
        "mnist", "kubernetes", "python", (ONE,), 2.0, namespace,
        kind_of_place="namespace", context=context, owner="ada@laptop",
    )  # fmt: skip


class Backend:
    """Has some jobs, and notes which of them is asked; each answer is an error.

    Args:
        found: The jobs, with their states.
    """

    def __init__(self, name: str, *found: tuple[Job, State]) -> None:
        self.name, self.found = name, found
        self.asked: list[Job] = []

    async def jobs(self, where: Where = HERE) -> list[tuple[Job, Status]]:
        if where.is_explicit and self.name == "local":
            return []
        return [
            (job, Status(state, (), settled=state.over))
            for job, state in self.found
            if where.context in ("", job.context) and where.namespace in ("", job.place)
        ]

    async def find(self, name: str, where: Where = HERE) -> tuple[Job, Status]:
        found = [one for one in await self.jobs(where) if one[0].name == name]
        if not found:
            raise NoSuchJob(f"there is no job {name}.")
        if len(found) > 1:
            raise UsageError(f"there are {len(found)} jobs named {name}.")
        return found[0]

    async def stacks(self, job: Job, replicas: Sequence[Replica]) -> Any:
        self.asked.append(job)
        raise BackendError("no answer.")

    async def usage(self, job: Job, replicas: Sequence[Replica]) -> Any:
        return await self.stacks(job, replicas)

    async def samples(self, job: Job, replicas: Sequence[Replica], seconds: float) -> Any:
        return await self.stacks(job, replicas)


class Session:
    """The jobs of some backends, found as any session finds them."""

    warm = None

    def __init__(self, *backends: Backend) -> None:
        self.backends: Any = backends

    async def jobs(self, faults: Any, where: Where) -> list[tuple[Job, Status]]:
        return await lookup.jobs(self.backends, where, faults)

    async def find(self, name: str, where: Where) -> Any:
        return await lookup.find(self.backends, name, where)

    def backend(self, name: str) -> Any:
        return next(one for one in self.backends if one.name == name)

    def owns(self, job: Job) -> bool:
        return True


class Display:
    def show(self, event: object) -> None:
        """Show nothing."""


def asked_by(verb: str, *words: str, backends: Sequence[Backend]) -> list[Job]:
    args = commands.parse([verb, *words], print)
    session: Any = Session(*backends)
    display: Any = Display()
    caller = commands.Caller(session, display, print, Path())
    with contextlib.suppress(BackendError):
        asyncio.run(VERBS[verb].run(args, caller))
    return [job for one in backends for job in one.asked]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("running", "ended"),
    [
        (of_cluster("team"), HERE_ENDED),
        (HERE_ENDED, of_cluster("team")),
        (of_cluster("team"), of_cluster("other")),
        (of_cluster("team", "west"), of_cluster("team", "east")),
    ],
    ids=["cluster", "here", "namespaces", "contexts"],
)
def test_the_only_job_that_runs_is_asked_although_another_one_has_its_name(
    verb: str, running: Job, ended: Job
) -> None:
    all_jobs = [(ended, State.SUCCEEDED), (running, State.RUNNING)]
    backends = [
        Backend(name, *(one for one in all_jobs if one[0].backend == name))
        for name in ("kubernetes", "local")
    ]
    assert asked_by(verb, backends=backends) == [running]


@pytest.mark.parametrize("verb", VERBS)
def test_a_name_that_several_jobs_have_is_refused(verb: str) -> None:
    backends = [
        Backend("kubernetes", (of_cluster("team"), State.RUNNING)),
        Backend("local", (HERE_ENDED, State.SUCCEEDED)),
    ]
    with pytest.raises(UsageError, match="there are 2 jobs named mnist"):
        asked_by(verb, "mnist", backends=backends)
    assert asked_by(verb, "mnist", "--namespace", "team", backends=backends) == [of_cluster("team")]


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("stacks", "mnist is over"),
        ("top", "mnist is over"),
        ("profile", r"mnist is over \(Succeeded\), and only a running job has a profile"),
    ],
)
def test_a_job_that_is_over_cannot_be_asked(verb: str, text: str) -> None:
    backends = [Backend("kubernetes"), Backend("local", (HERE_ENDED, State.SUCCEEDED))]
    with pytest.raises(UsageError, match=text):
        asked_by(verb, "mnist", backends=backends)
