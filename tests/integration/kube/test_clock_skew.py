"""A cluster whose clocks are an hour ahead of this machine's, or behind.

Times in objects and the stamps of lines are the cluster's; ages, limits and ``--since`` are this
machine's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.backends.kubernetes.cluster import build_pods
from ciao_kernel.errors import BackendError, CiaoError, JobFailed
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import LogOptions
from ciao_kernel.session import left_running
from ciao_kernel.session.left_running import LeftRunning
from ciao_kernel.session.session import Session
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import NAMESPACE, ApiServer
from tests.helpers.api_user import OWNER, Here, run
from tests.helpers.jobs import Recorder

MINUTE = 60
NEAR = 600
"""Seconds from which on a time is another; the hour of the clocks is more."""
JOB = "%framework=tensorflow\n%name=mine\n%worker=2\n"
WORKER = Replica("worker", 0)


async def fails_and_ends_late(pod: Pod) -> int:
    """Worker 0 fails; the other writes its last line a second after it was told to end."""
    pod.print("ready")
    if pod.number == 0:
        await asyncio.sleep(0.3)
        return 1
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        await asyncio.sleep(1.5)
        pod.print("saved")
    return 143


async def old_and_new_lines(pod: Pod) -> int:
    """Write a line of two hours ago, and one of now."""
    now = int(pod.clock() * 1e9)
    pod.log.write([(now - 7200 * 10**9, b"old"), (now, b"new")])
    await asyncio.sleep(600)
    return 0


async def endless(pod: Pod) -> int:
    pod.print("ready")
    await asyncio.sleep(600)
    return 0


async def lingering(pod: Pod) -> int:
    """Run until it is told to end, and some seconds more."""
    try:
        return await endless(pod)
    finally:
        await asyncio.sleep(2.5)


@pytest.fixture(params=[3600, -3600], ids=["ahead", "behind"])
def here(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Here]:
    with ApiServer(tmp_path, endless, request.param) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        yield Here(server, tmp_path)


async def started(session: Session, display: Recorder, folder: Path) -> asyncio.Task[Any]:
    """Start a job that goes on; the task is its cell's."""
    cell = asyncio.ensure_future(run(session, JOB + "pass", display, folder))
    await display.until("ready")
    return cell


async def detached(session: Session, folder: Path) -> None:
    """Start a job that no cell follows, and wait until it runs."""
    assert await run(session, JOB + "%detach\npass", Recorder(), folder) is None
    async with asyncio.timeout(60):
        while (await session.jobs())[-1][1].state is not State.RUNNING:
            await asyncio.sleep(0.05)


def test_last_lines_are_waited_for(here: Here, tmp_path: Path) -> None:
    """They were lost where the job's end seemed to be an hour ago."""
    here.server.program = fails_and_ends_late
    display = Recorder()
    error = here.do(lambda session, _: run(session, JOB + "pass", display, tmp_path))
    assert isinstance(error, JobFailed)
    assert error.message.startswith("worker-0 ended with")
    assert display.data("worker-1") == b"ready\nsaved\n"
    times = [one.since for one in (display.status, *display.status.replicas)]
    assert all(abs(time.time() - one) < NEAR for one in times), times


def test_who_deleted_a_pod_whose_end_nobody_saw(here: Here, tmp_path: Path) -> None:
    here.server.program = lingering

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        display = Recorder()
        cell = await started(session, display, tmp_path)
        here.server.reaction = 5.0  # times of the operator have whole seconds
        await asyncio.to_thread(here.server.lose, "mine-worker-0")
        return await cell

    error = here.do(work)
    assert isinstance(error, JobFailed)
    assert error.message == "somebody deleted the pod of worker-0."


def test_ages_are_those_of_this_machine(here: Here, tmp_path: Path) -> None:
    async def work(session: Session, backend: KubernetesBackend) -> list[float]:
        await detached(session, tmp_path)
        ((job, now),) = await session.jobs()
        _, found, status = await session.find("mine")
        about = await backend.details(job)
        parts: tuple[ReplicaStatus, ...] = (*now.replicas, *status.replicas)
        times = [job.created, found.created, *(one.since for one in parts)]
        return [*times, *(one.since for one in about.conditions)]

    times = here.do(work)
    assert len(times) == 8
    assert all(abs(time.time() - one) < NEAR for one in times), times


def test_lines_since_some_minutes_ago(here: Here, tmp_path: Path) -> None:
    here.server.program = old_and_new_lines

    async def work(session: Session, backend: KubernetesBackend) -> tuple[bytes, bytes]:
        await detached(session, tmp_path)
        _, job, _ = await session.find("mine")
        since = time.time() - 10 * MINUTE
        log = await backend.log(job, WORKER, LogOptions(since=since))
        pieces = backend.log_pieces(job, WORKER, LogOptions(since=since))
        assert b"".join([piece async for piece in pieces]).startswith(log)
        display = Recorder()
        following = asyncio.ensure_future(session.attach("mine", display, since=since))
        await display.until("new")
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        return log, display.data("worker-0")

    log, followed = here.do(work)
    assert followed == b"new\n"
    assert b"new\n" in log
    assert b"old" not in log


@pytest.mark.parametrize(("minutes", "goes"), [(1, False), (45, True)])
def test_only_builds_that_ended_long_ago_are_removed(here: Here, minutes: int, goes: bool) -> None:
    """An hour ahead, pods went that another kernel's builder was about to read."""

    def at(ago: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(here.server.clock() - ago))

    def add() -> None:
        labels = {job_metadata.MANAGED: "ciao"}
        pod = {"kind": "Pod", "metadata": {"name": "build", "labels": labels}, "spec": {}}
        ended = {"type": "Ready", "status": "False", "lastTransitionTime": at(minutes * MINUTE)}
        pod["status"] = {"phase": "Failed", "conditions": [ended]}
        made = here.server.store.create("pods", pod, NAMESPACE)
        made["metadata"]["creationTimestamp"] = at(minutes * MINUTE)

    here.server.call(add)

    async def work(_: Session, backend: KubernetesBackend) -> None:
        target = await backend._targets.of()
        await build_pods.delete_stale_build_pods(target, here.settings)

    here.do(work)
    assert here.server.left() == ([] if goes else ["pods/build"])


class Listing:
    """A session that tells when it has listed all jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.over = asyncio.Event()
        self.names: list[str] = []

    async def jobs(self, faults: list[BackendError]) -> list[tuple[Job, Status]]:
        try:
            found = await self._session.jobs(faults)
            self.names = [job.name for job, _ in found]
            return found
        finally:
            self.over.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize(
    ("label", "says"),
    [(OWNER.label, ""), ("ada@elsewhere kernel 7", "still running from before: mine (")],
    ids=["this", "another"],
)
def test_only_a_job_of_another_kernel_is_left_from_an_earlier_one(
    here: Here, tmp_path: Path, label: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_running, "_PATIENCE", 60.0)
    left = LeftRunning(label)

    async def work(session: Session, _: KubernetesBackend) -> str:
        await detached(session, tmp_path)
        display = Recorder()
        listing: Any = Listing(session)
        async with left.reported(listing, display):
            await listing.over.wait()
        assert listing.names == ["mine"]
        return display.notices

    notices = here.do(work)
    assert notices.startswith(says)
    assert bool(notices) is bool(says)
