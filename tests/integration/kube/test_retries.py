"""Jobs that are started again after the loss of a pod; the cluster is on the loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes import rights
from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.backends.kubernetes.lifecycle import creation, next_try, resubmission, retries
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.backends.kubernetes.lifecycle.resubmission import Resubmission
from ciao_kernel.delivery.output import results, values_message
from ciao_kernel.delivery.output.result_writer import MARK
from ciao_kernel.errors import BackendError, CiaoError, ClusterFault, JobFailed, JobStopped
from ciao_kernel.kube.client import Client
from ciao_kernel.model import State
from ciao_kernel.session.session import Session
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import ApiServer
from tests.helpers.api_user import Here, run
from tests.helpers.jobs import Recorder, wait

JOB = "%framework=tensorflow\n%name=mine\n%worker=2\n%retries=2\npass"
Work = Callable[[Session, KubernetesBackend], Coroutine[Any, Any, Any]]


class Training:
    """A program that trains on until its pod is told to end, and ends in the last of its lives.

    Args:
        lives: After so many lives of a replica it succeeds.
        ends: Exit code of the others when they have written two lines, None if they go on.
        slowly: Seconds from SIGTERM to the end.
    """

    def __init__(self, lives: int, ends: int | None = None, slowly: float = 0.1) -> None:
        self.lives, self.ends, self.slowly = lives, ends, slowly
        self.count: dict[str, int] = {}

    async def __call__(self, pod: Pod) -> int:
        life = self.count[pod.name] = self.count.get(pod.name, 0) + 1
        try:
            pod.print(f"life {life} begins", "trains")
            if life == self.lives:
                return 0
            if self.ends is not None and pod.number == 0:
                return self.ends
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(self.slowly)
            pod.print(f"life {life} ends")
        return 143


def on_cluster(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: Training,
    work: Work,
    **settings: Any,
) -> tuple[Any, list[str]]:
    """Return what the work returned, and what is left on the cluster."""
    with ApiServer(folder, program) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        here = Here(server, folder)
        here.settings = replace(here.settings, **settings)
        program.server = server  # type: ignore[attr-defined]
        return here.do(work), server.left()


async def evict(program: Training, display: Recorder, life: int = 1, replica: int = 1) -> None:
    """Evict a replica when both have begun a life."""
    for number in (0, 1):
        await display.until(f"life {life} begins", replica=f"worker-{number}")
    server: ApiServer = program.server  # type: ignore[attr-defined]
    await asyncio.to_thread(server.evict, f"mine-worker-{replica}")


@pytest.mark.stands_for("trials")
def test_a_job_is_one_job_over_its_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, display = Training(3), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> tuple[CiaoError | None, Path]:
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        await evict(program, display)
        await evict(program, display, life=2, replica=0)
        error = await cell
        assert session.last is not None
        ((job, status),) = await session.jobs()
        assert (job.name, job.tries, status.state) == ("mine", 3, State.SUCCEEDED)
        assert job.files == session.last.job.files
        return error, session.last.folder

    (error, folder), _ = on_cluster(tmp_path, monkeypatch, program, work)
    assert error is None
    one, two = (f"life {life} begins\ntrains\nlife {life} ends\n" for life in (1, 2))
    last = "life 3 begins\ntrains\n"
    for replica in ("worker-0", "worker-1"):
        assert display.data(replica).decode() == one + two + last
        tries = (f"{replica}.try-1.log", f"{replica}.try-2.log", f"{replica}.log")
        assert [(folder / name).read_text() for name in tries] == [one, two, last]
    told = [line for line in display.notices.splitlines() if "started again" in line]
    why = "was evicted, as when its node is drained; mine is started again"
    assert told == [
        f"worker-1 {why}, try 2 of 3 (%retries=2).",
        f"worker-0 {why}, try 3 of 3 (%retries=2).",
    ]
    assert display.status.tries == 3
    assert [one.restarts for one in display.status.replicas] == [2, 2]
    assert "was restarted" not in display.notices


def test_the_last_try_fails_with_its_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, display = Training(9), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        text = JOB.replace("retries=2", "retries=1")
        cell = asyncio.ensure_future(run(session, text, display, tmp_path))
        await evict(program, display)
        await evict(program, display, life=2)
        return await cell

    error, _ = on_cluster(tmp_path, monkeypatch, program, work)
    assert isinstance(error, JobFailed)
    assert "the pod of worker-1 was evicted" in error.message
    assert display.status.tries == 2


def test_values_of_an_earlier_try_are_not_those_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display = Training(2), Recorder()
    message = MARK + json.dumps({"names": ["metrics"], "values": {}})

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        text = JOB.replace("%retries", "%output=metrics\n%retries")
        cell = asyncio.ensure_future(run(session, text, display, tmp_path))
        await display.until("life 1 begins", replica="worker-0")
        ((job, _),) = await session.jobs()
        place = results.folder(job.files, job.replicas[0])
        assert values_message.unpack(message, place)  # as the follower does at its end
        assert results.Results(place).arrived
        await evict(program, display)
        error = await cell
        assert not results.Results(place).arrived
        return error

    error, _ = on_cluster(tmp_path, monkeypatch, program, work)
    assert error is None
    assert "no values came back for %output" in display.notices


def test_a_program_that_fails_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = Recorder()

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        return await run(session, JOB, display, tmp_path)

    error, _ = on_cluster(tmp_path, monkeypatch, Training(9, ends=143), work)
    assert isinstance(error, JobFailed)
    assert display.status.tries == 1


@pytest.mark.parametrize("when", ["ending", "running"])
def test_a_stop_between_and_in_tries_leaves_nothing(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display = Training(9, slowly=1.0), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> None:
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        await evict(program, display)
        if when == "running":
            await display.until("life 2 begins")
        else:
            await wait(lambda: "started again" in display.notices)
        cell.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell

    _, left = on_cluster(tmp_path, monkeypatch, program, work)
    assert left == []
    assert display.status.state is State.STOPPED


def test_attach_starts_a_job_again_that_nobody_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display = Training(2), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> None:
        await run(session, f"%detach\n{JOB}", Recorder(), tmp_path)
        await wait(lambda: len(program.count) == 2)
        server: ApiServer = program.server  # type: ignore[attr-defined]
        await asyncio.to_thread(server.evict, "mine-worker-1")
        while (await session.find("mine"))[2].state is not State.FAILED:
            await asyncio.sleep(0.1)
        await session.attach("mine", display)

    on_cluster(tmp_path, monkeypatch, program, work)
    assert display.status.state is State.SUCCEEDED
    assert display.data("worker-0").decode().endswith("life 2 begins\ntrains\n")


class Gate:
    """Holds a follower that has deleted a failed try, before it creates the next one."""

    def __init__(self, at: str = "create") -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self._create = getattr(creation, at)

    async def create(self, *args: Any) -> Any:
        self.reached.set()
        await self.opened.wait()
        return await self._create(*args)


def after_a_kill(
    folder: Path, monkeypatch: pytest.MonkeyPatch, work: Work, at: str = "create"
) -> tuple[Any, Any]:
    """Return what a kernel's work returned, and what is left; another one was killed between tries.

    The follower ends, as by SIGKILL, when it has deleted the failed try and made no other, or when
    it has made the source of the next one (`_create_job`).
    """
    program = Training(2)

    async def nothing(*_: Any, **__: Any) -> None:
        pass

    async def killed(session: Session, _: KubernetesBackend) -> None:
        await run(session, f"%detach\n{JOB}", Recorder(), folder)
        gate, display = Gate(at), Recorder()
        with monkeypatch.context() as patch:
            patch.setattr(creation, at, gate.create)
            following = asyncio.ensure_future(session.attach("mine", display))
            await evict(program, display)
            await gate.reached.wait()
        del following  # it ends with its event loop, which runs nothing of it any more

    with ApiServer(folder, program) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        program.server = server  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(creation, "_undo", nothing)  # the end of its event loop would begin it
            Here(server, folder).do(killed)
        left = server.left()
        assert "tfjobs/mine" not in left
        sources = [one for one in left if "configmaps/" in one and "next-try" not in one]
        assert bool(sources) == (at == "_create_job")
        # Of another machine: it has no files of the first one.
        return Here(server, folder / "other").do(work), server.left()


def test_attach_goes_on_after_a_kernel_that_was_killed_between_two_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = Recorder()

    async def work(session: Session, backend: KubernetesBackend) -> None:
        ((job, status),) = await session.jobs()
        assert (job.name, job.tries, status.state) == ("mine", 1, State.PENDING)
        assert "is started again after the loss of a replica" in status.message
        await run(session, f"%detach\n{JOB}", Recorder(), tmp_path)
        assert session.last is not None
        assert session.last.name == "mine-2"  # the name of the first is taken
        await session.attach("mine", display)
        await backend.delete((await session.find("mine"))[1])
        assert [job.name for job, _ in await session.jobs()] == ["mine-2"]

    _, left = after_a_kill(tmp_path, monkeypatch, work)
    assert display.status.state is State.SUCCEEDED
    assert display.status.tries == 2
    assert "mine is started again, try 2 of 3 (%retries=2)" in display.notices
    assert display.data("worker-0").decode() == "life 2 begins\ntrains\n"
    assert not [one for one in left if "next-try" in one]


@pytest.mark.second("faults")
def test_attach_goes_on_after_a_kernel_that_was_killed_behind_the_source_of_a_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = Recorder()
    monkeypatch.setattr(resubmission, "_OTHERS", 0.5)

    async def work(session: Session, _: KubernetesBackend) -> None:
        await session.attach("mine", display)

    after_a_kill(tmp_path, monkeypatch, work, "_create_job")
    assert display.status.state is State.SUCCEEDED
    assert display.data("worker-0").decode() == "life 2 begins\ntrains\n"


@pytest.mark.second("faults")
def test_a_user_without_rights_does_not_start_a_recorded_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(session: Session, _: KubernetesBackend) -> None:
        async def denied(client: Any, place: str, *wanted: rights.Right) -> list[bool]:
            return [one not in rights.CLAIM for one in wanted]

        monkeypatch.setattr(rights, "allowed", denied)
        with pytest.raises(BackendError, match="only by a user who may patch and delete"):
            await session.attach("mine", Recorder())

    _, left = after_a_kill(tmp_path, monkeypatch, work)
    assert "tfjobs/mine" not in left
    assert "configmaps/mine-next-try" in left


@pytest.mark.second("faults")
def test_a_deletion_after_a_kernel_that_was_killed_between_two_tries_is_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(session: Session, backend: KubernetesBackend) -> list[Any]:
        await backend.delete((await session.find("mine"))[1])
        return await session.jobs()

    found, left = after_a_kill(tmp_path, monkeypatch, work)
    assert found == left == []


@pytest.mark.second("faults", only="no-right")
@pytest.mark.parametrize("noted", [True, False], ids=["record", "no-right"])
def test_a_deletion_from_elsewhere_between_two_tries_is_the_end(
    noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display = Training(9), Recorder()
    if not noted:
        unrecorded(monkeypatch)

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        server: ApiServer = program.server  # type: ignore[attr-defined]
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        for number in (0, 1):
            await display.until("life 1 begins", replica=f"worker-{number}")
        found = (await session.find("mine"))[1]

        async def delete(session: Session, backend: KubernetesBackend) -> None:
            await backend.delete(found)

        gate = Gate()
        monkeypatch.setattr(creation, "create", gate.create)
        await evict(program, display)
        await gate.reached.wait()
        assert "tfjobs/mine" not in server.left()
        if not noted:
            gate.opened.set()
        await asyncio.to_thread(Here(server, tmp_path / "other").do, delete)
        gate.opened.set()
        return await cell

    error, left = on_cluster(tmp_path, monkeypatch, program, work)
    assert isinstance(error, JobStopped)
    assert left == []


@pytest.mark.second("trials")
def test_two_followers_make_one_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, display, other = Training(2), Recorder(), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        for number in (0, 1):
            await display.until("life 1 begins", replica=f"worker-{number}")

        async def follow(session: Session, _: KubernetesBackend) -> None:
            await session.attach("mine", other)

        server: ApiServer = program.server  # type: ignore[attr-defined]
        beside = asyncio.ensure_future(
            asyncio.to_thread(Here(server, tmp_path / "other").do, follow)
        )
        await other.until("life 1 begins", replica="worker-1")
        await evict(program, display)
        await beside
        return await cell

    error, _ = on_cluster(tmp_path, monkeypatch, program, work)
    assert error is None
    assert set(program.count.values()) == {2}
    assert display.status.state is other.status.state is State.SUCCEEDED
    for replica in ("worker-0", "worker-1"):
        assert display.data(replica) == other.data(replica)


class Meeting:
    """Holds the first follower behind its creation of a try until a second one has done its part.

    Args:
        creates: The second one creates too: it begins before the first creation, and goes on after.
    """

    def __init__(self, *, creates: bool) -> None:
        self.first, self.both, self.made, self.done = (threading.Event() for _ in range(4))
        self._create = creation.create
        if not creates:
            self.both.set()

    async def create(self, *args: Any) -> Any:
        if self.first.is_set():
            self.both.set()
            await asyncio.to_thread(self.made.wait, 60)
            try:
                return await self._create(*args)
            finally:
                self.done.set()
        self.first.set()
        await asyncio.to_thread(self.both.wait, 60)
        made = await self._create(*args)
        self.made.set()
        await asyncio.to_thread(self.done.wait, 60)
        return made


@pytest.mark.second("trials")
@pytest.mark.parametrize("second", ["creates", "sees"])
def test_a_second_follower_spoils_no_try_that_the_first_has_just_created(
    second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display, other = Training(2), Recorder(), Recorder()
    meeting = Meeting(creates=second == "creates")

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))

        async def follow(session: Session, _: KubernetesBackend) -> None:
            await session.attach("mine", other)

        for number in (0, 1):
            await display.until("life 1 begins", replica=f"worker-{number}")
        monkeypatch.setattr(creation, "create", meeting.create)
        await evict(program, display)
        await asyncio.to_thread((meeting.first if second == "creates" else meeting.made).wait, 60)
        server: ApiServer = program.server  # type: ignore[attr-defined]
        beside = asyncio.ensure_future(
            asyncio.to_thread(Here(server, tmp_path / "other").do, follow)
        )
        if second == "sees":
            await other.until("life 2 begins")
            meeting.done.set()
        await beside
        return await cell

    error, left = on_cluster(tmp_path, monkeypatch, program, work)
    assert error is None
    assert set(program.count.values()) == {2}
    assert display.status.state is other.status.state is State.SUCCEEDED
    assert "tfjobs/mine" in left


@pytest.mark.second("faults")
def test_a_try_that_cannot_be_created_is_told_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display = Training(2), Recorder()

    async def refused(*_: Any) -> Any:
        raise BackendError("the quota is used up.")

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        await display.until("life 1 begins", replica="worker-0")
        monkeypatch.setattr(creation, "create", refused)
        await evict(program, display)
        return await cell

    error, left = on_cluster(tmp_path, monkeypatch, program, work)
    assert "the quota is used up" in str(error)
    assert "mine could not be started again yet: `%ciao attach mine" in display.notices
    assert "configmaps/mine-next-try" in left


def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the rights to write a record."""
    monkeypatch.setattr(rights, "CLAIM", (rights.Right("patch", "nothing"),))

    async def allowed(client: Any, place: str, *wanted: rights.Right) -> list[bool]:
        return [one.resource != "nothing" for one in wanted]

    monkeypatch.setattr(rights, "allowed", allowed)


STEPS: dict[str, tuple[Any, str, bool]] = {
    "begin": (Resubmission, "again", False),
    "record": (next_try, "write", False),
    "recorded": (next_try, "write", True),
    "deletion": (Deletions, "remove", False),
    "deletion-lost": (Client, "delete", True),
    "end": (Deletions, "_wait", False),
    "creation": (creation, "create", False),
    "job": (creation, "_create_job", False),
    "created": (creation, "create", True),
    "job-lost": (creation, "_create_job", True),
    "all-lost": (creation, "_job_first", True),
}
RECORDED = ["begin", "record", "recorded", "deletion", "deletion-lost", "end", "creation", "job"]
RECORDED += ["created", "job-lost"]
UNRECORDED = ["begin", "deletion", "deletion-lost", "end", "creation", "all-lost"]
WAITING = [*((one, True) for one in RECORDED), *((one, False) for one in UNRECORDED)]
"""Steps at which the API server goes away, and whether the next try is recorded."""


def goes_away(monkeypatch: pytest.MonkeyPatch, program: Training, step: str) -> None:
    """Take the API server away at a step of the next try; some are done, and their answer is lost.

    Args:
        monkeypatch: Changes the step.
        program: Runs on the cluster.
        step: One of STEPS.
    """
    of, name, after = STEPS[step]
    work, done = getattr(of, name), False

    async def gone(*args: Any, **options: Any) -> Any:
        nonlocal done
        first, done = not done, True
        server: ApiServer = program.server  # type: ignore[attr-defined]
        if not after:
            server.away = server.away or first
        found = await work(*args, **options)
        server.away = server.away or first
        if first and step.endswith("lost"):
            raise ClusterFault("no answer.")
        return found

    monkeypatch.setattr(of, name, gone)


@pytest.mark.second("faults", only="end-")
@pytest.mark.parametrize(("step", "noted"), WAITING)
def test_a_next_try_is_made_when_the_api_server_is_back(
    step: str, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a lost answer has made is removed, and made again.
    program, display = Training(3 if step in ("job-lost", "all-lost") else 2), Recorder()
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.1)
    monkeypatch.setattr(resubmission, "_OTHERS", 0.5)
    if not noted:
        unrecorded(monkeypatch)

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        server: ApiServer = program.server  # type: ignore[attr-defined]
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        for number in (0, 1):
            await display.until("life 1 begins", replica=f"worker-{number}")
        goes_away(monkeypatch, program, step)
        await evict(program, display)
        await wait(lambda: "is not started again yet" in display.notices)
        server.away = False
        return await cell

    error, left = on_cluster(
        tmp_path, monkeypatch, program, work, request_patience=0.3, stop_grace=0.5
    )
    assert error is None
    assert set(program.count.values()) == {program.lives}
    assert display.status.tries == 2
    assert display.notices.count("is not started again yet") == 1
    assert "could not be started again" not in display.notices
    assert "may exist" not in display.notices
    assert [one for one in left if "jobs/" in one] == ["tfjobs/mine"]


@pytest.mark.second("faults")
def test_an_own_record_is_not_taken_for_that_of_another_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display = Training(2), Recorder()
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.1)
    monkeypatch.setattr(resubmission, "_OTHERS", 200.0)

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        server: ApiServer = program.server  # type: ignore[attr-defined]
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        for number in (0, 1):
            await display.until("life 1 begins", replica=f"worker-{number}")
        goes_away(monkeypatch, program, "deletion")
        await evict(program, display)
        await wait(lambda: "is not started again yet" in display.notices)
        server.away = False
        return await asyncio.wait_for(cell, 100)

    error, _ = on_cluster(tmp_path, monkeypatch, program, work, request_patience=0.3)
    assert error is None
    assert display.status.tries == 2


@pytest.mark.second("faults")
@pytest.mark.parametrize("step", ["deletion", "creation"])
def test_a_stop_ends_a_next_try_that_waits_for_the_api_server(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display = Training(9), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> None:
        server: ApiServer = program.server  # type: ignore[attr-defined]
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        for number in (0, 1):
            await display.until("life 1 begins", replica=f"worker-{number}")
        goes_away(monkeypatch, program, step)
        await evict(program, display)
        await wait(lambda: "is not started again yet" in display.notices)
        server.away = False
        cell.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell

    _, left = on_cluster(tmp_path, monkeypatch, program, work, request_patience=0.3)
    assert left == []
    assert set(program.count.values()) == {1}


@pytest.mark.second("faults")
def test_a_next_try_is_given_up_with_the_patience_of_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, display = Training(9), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        server: ApiServer = program.server  # type: ignore[attr-defined]
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        for number in (0, 1):
            await display.until("life 1 begins", replica=f"worker-{number}")
        goes_away(monkeypatch, program, "creation")
        await evict(program, display)
        error = await cell
        server.away = False
        return error

    error, left = on_cluster(
        tmp_path, monkeypatch, program, work, request_patience=0.1, follow_patience=1.5
    )
    assert isinstance(error, ClusterFault)
    assert display.notices.count("mine could not be started again yet: `%ciao attach mine") == 1
    assert "configmaps/mine-next-try" in left


def test_a_dry_run_and_the_cell_say_who_starts_the_job_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry, display = Recorder(), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> None:
        await run(session, f"%dryrun\n{JOB}", dry, tmp_path)
        await run(session, JOB, display, tmp_path)

    on_cluster(tmp_path, monkeypatch, Training(1), work)
    words = "%retries: who follows the job starts it again after the loss of a replica."
    assert dry.notices.startswith(f"# {words}")
    assert "`%ciao attach mine`" in dry.notices
    assert words in display.notices
