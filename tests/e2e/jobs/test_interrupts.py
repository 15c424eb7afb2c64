"""The stop button at any moment: the cell ends soon, and nothing of its job is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import pytest

from ciao_kernel.backends.kubernetes.lifecycle import deletion
from ciao_kernel.jupyter.shutdown import Lifetime
from ciao_kernel.model import Owner, State
from ciao_kernel.session import stopping
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.faults.proxy import Proxy
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import CPU_REQUEST, Team, before_request
from tests.helpers.jobs import Recorder, wait

Figure = Callable[[str], None]

COUNT = int(os.environ.get("CIAO_TEST_INTERRUPTS", "30"))
AT_ONCE = 5
HEAD = "%framework=tensorflow\n%worker=2\n"
WAIT = HEAD + "import time\nprint('here', flush=True)\ntime.sleep(300)\n"
SHORT = HEAD + "import time\nprint('here', flush=True)\ntime.sleep(.5)\n"


class Undecided(Lifetime):
    """Of a kernel of which nobody knows whether it ends, until the test has it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.decided = asyncio.Event()

    async def shutdown_begins(
        self, within: float, is_ending: Callable[[], Awaitable[bool]]
    ) -> bool:
        await self.decided.wait()
        return False


def kernel_session(
    team: Team, registry: Registry, lifetime: Lifetime | None = None, **settings: float
) -> Session:
    """As a kernel has it: a shutdown may follow an interrupt, so a stop waits a moment."""
    owner, made = Owner("a test", os.getpid()), team.settings(**settings)
    return Session(registry, owner, made, lifetime or Lifetime())


async def interrupted(work: asyncio.Task[object]) -> float:
    """Press stop; return the seconds that the cell takes to end.

    By itself no cell here ends in so short a time, but for those of `SHORT`.
    """
    began = time.monotonic()
    work.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait({work})
    if not work.cancelled():
        assert work.exception() is None, work.exception()  # it had ended just before
    return time.monotonic() - began


async def go_on(team: Team, name: str) -> None:
    """Let both workers of a job end that wait for it."""
    for number in (0, 1):
        pod = f"{name}-worker-{number}"
        await asyncio.to_thread(team.namespace.touch, pod, "/tmp/go-on")


async def said(display: Recorder, text: str) -> None:
    """Wait until the cell has said something, be it after its end."""
    await wait(lambda: text in display.notices)


async def wrote(display: Recorder, text: str, *replicas: str) -> None:
    """Wait until replicas have written something; a busy cluster starts pods slowly."""
    data = text.encode()
    await wait(lambda: all(data in display.data(replica) for replica in replicas))


@pytest.mark.second("trials")
@pytest.mark.slow
def test_at_any_moment(team: Team, figure: Figure) -> None:
    chance = random.Random(COUNT)
    # Checks, dry run and creation take some tenths of a second, then comes the rest.
    moments = [chance.choice((0.4, 1.5, 5.0)) * chance.random() for _ in range(COUNT)]
    took: list[float] = []

    async def press(number: int, session: Session, gate: asyncio.Semaphore) -> None:
        async with gate:
            display, ends = Recorder(), number % 3 == 0
            text = SHORT if ends else WAIT
            work = asyncio.ensure_future(session.run(text, display, team.folder))
            if ends:  # press about when it ends by itself
                await wait(lambda: work.done() or b"here" in display.data("worker-0"))
            await asyncio.wait({work}, timeout=moments[number] / 2 if ends else moments[number])
            took.append(await interrupted(work))

    async def main() -> None:
        registry = Registry({})
        session = kernel_session(team, registry, shutdown_wait=0.2)
        gate = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as presses:
            for number in range(COUNT):
                presses.create_task(press(number, session, gate))
        await registry.close()

    asyncio.run(main())
    # What had ended before it was interrupted stays, as every job that is over.
    over = [
        job["metadata"]["name"]
        for job in team.namespace.get("tfjobs")["items"]
        if any(c["type"] == "Succeeded" for c in job["status"].get("conditions", ()))
    ]
    until(
        lambda: not [one for one in team.left() if not any(name in one for name in over)],
        "everything to be gone",
        120,
    )
    figure(f"{COUNT} interrupts, {len(over)} came too late; worst {max(took):.1f} s to the end")


@pytest.mark.second("faults")
@pytest.mark.slow
def test_what_is_still_ending_is_named(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that takes its time is named when the cell ends, and goes later."""
    # However long a busy API server takes to tell what still ends, the cell waits for that.
    monkeypatch.setattr(deletion, "_NAMING", 60.0)
    monkeypatch.setattr(stopping, "_PATIENCE", 60.0)
    text = HEAD + (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('here', flush=True)\n"
        "while not os.path.exists('/tmp/go-on'): time.sleep(.1)\n"
    )

    async def main() -> Recorder:
        registry, display = Registry({}), Recorder()
        session = kernel_session(team, registry, stop_grace=100.0)
        work = asyncio.ensure_future(session.run(text, display, team.folder))
        await wrote(display, "here", "worker-0", "worker-1")
        await interrupted(work)
        assert display.job
        name = display.job.name
        assert (
            f"{name} is stopping: it is deleted, and Kubernetes is removing pod {name}-worker-0"
            in (display.notices)
        )
        await go_on(team, name)
        await said(display, f"{name} is stopped; nothing of it is left in")
        await registry.close()
        return display

    asyncio.run(main())
    assert team.left() == []


@pytest.mark.slow
def test_what_a_replica_writes_while_it_ends_is_shown_and_kept(team: Team, figure: Figure) -> None:
    """A checkpoint that is saved on SIGTERM takes longer than the cell."""
    text = HEAD + (
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    print('saving', flush=True)\n"
        "    while not os.path.exists('/tmp/go-on'): time.sleep(.1)\n"
        "    print('saved at step 812', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('here', flush=True)\n"
        "time.sleep(300)\n"
    )

    async def main() -> None:
        registry, display = Registry({}), Recorder()
        session = kernel_session(team, registry, stop_grace=100.0)
        work = asyncio.ensure_future(session.run(text, display, team.folder))
        await wrote(display, "here", "worker-0", "worker-1")
        figure(f"{await interrupted(work):.2f} s to the end of the cell")
        assert display.job
        name = display.job.name
        assert b"saved at step 812" not in display.data("worker-0")
        assert session.last
        assert session.last.state is State.STOPPED
        await wrote(display, "saving", "worker-0", "worker-1")
        await go_on(team, name)
        await said(display, f"{name} is stopped; nothing of it is left in")
        kept = [session.last.folder / f"worker-{number}.log" for number in (0, 1)]
        for number, log in enumerate(kept):
            assert display.data(f"worker-{number}").endswith(b"saving\nsaved at step 812\n")
            assert log.read_bytes().endswith(b"saving\nsaved at step 812\n")
        assert display.status.state is State.STOPPED
        await registry.close()

    asyncio.run(main())
    assert team.left() == []


def test_a_cell_that_runs_again_at_once_has_its_name_again(
    team: Team, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    """The second job waits until the first is gone; here, for as long as a busy node takes."""
    monkeypatch.setattr(deletion, "_USUAL", 120.0)
    named = "%name=again\n"

    async def main() -> None:
        registry, display = Registry({}), Recorder()
        session = kernel_session(team, registry)
        text = WAIT.replace(HEAD, HEAD + named)
        work = asyncio.ensure_future(session.run(text, display, team.folder))
        await wrote(display, "here", "worker-0", "worker-1")
        await interrupted(work)
        second, began = Recorder(), time.monotonic()
        again = session.run(SHORT.replace(HEAD, HEAD + named), second, team.folder)
        work = asyncio.ensure_future(again)
        await said(display, "again is stopped; nothing of it is left in")
        figure(f"its name was free after {time.monotonic() - began:.1f} s")
        await work
        assert second.job
        assert second.job.name == "again"
        await registry.close()

    asyncio.run(main())


@pytest.mark.second("faults")
@pytest.mark.slow
def test_without_an_api_server(team: Team, proxy: Proxy) -> None:
    """The cell ends and says that the job may run; it is deleted when the server is back."""

    async def main() -> None:
        registry, display = Registry({}), Recorder()
        session = kernel_session(team, registry)
        work = asyncio.ensure_future(session.run(WAIT, display, team.folder))
        await wrote(display, "here", "worker-1")
        proxy.refuse()
        await interrupted(work)
        assert display.job
        name = display.job.name
        assert f"{name} is stopping: the API server has not answered yet." in display.notices
        assert f"`%ciao delete {name}` asks again" in display.notices
        assert f"TFJob/{name}" in team.left()
        proxy.pass_on()
        await said(display, f"{name} is stopped; nothing of it is left in")
        await registry.close()

    asyncio.run(main())
    assert team.left() == []


@pytest.mark.second("faults")
@pytest.mark.parametrize(
    ("moment", "unknown"),
    [("first request", False), ("source", True), ("job", True), ("made", False)],
)
def test_without_an_api_server_while_the_job_is_made(
    team: Team, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, moment: str, unknown: bool
) -> None:
    """Nobody knows what exists then; when the server is back, it is removed again."""
    requests = {"first request": "", "source": r"^POST .*/configmaps$", "job": "^POST .*/tfjobs$"}

    async def main() -> None:
        registry, display = Registry({}), Recorder()
        session = kernel_session(team, registry)
        await session.jobs()  # What is slow the first time is behind it.
        if moment == "made":
            work = asyncio.ensure_future(session.run(WAIT, display, team.folder))
            await wait(lambda: display.begun or work.done())
            proxy.stall()
        else:
            reached = before_request(monkeypatch, requests[moment], proxy.stall)
            work = asyncio.ensure_future(session.run(WAIT, display, team.folder))
            await wait(lambda: reached.is_set() or work.done())
        assert not work.done(), display.notices
        await interrupted(work)
        assert ("may exist: the API server has not answered yet" in display.notices) is unknown
        stops = "is stopping: the API server has not answered yet"
        assert (stops in display.notices) is (moment == "made")
        proxy.pass_on()
        if unknown:
            await said(display, "is removed.")
        elif moment == "made":
            await said(display, "is stopped; nothing of it is left in")
        await registry.close()

    asyncio.run(main())
    # An operator that learns late of the job makes pods of it, which the cluster removes again.
    until(lambda: not team.left(), "everything to be gone", 60)


@pytest.mark.second("faults")
@pytest.mark.slow
def test_a_command_waits_until_nothing_of_its_job_is_left(team: Team, proxy: Proxy) -> None:
    """It said that the job is removed, and ended: what the server created then was left there."""
    (team.folder / "train.py").write_text(WAIT.removeprefix(HEAD))
    images = " ".join(f"{name}={image}" for name, image in team.images.items())
    env = {**os.environ, "CIAO_STORAGE": str(team.storage), "CIAO_IMAGES": images}
    env["CIAO_CPU_REQUEST"] = CPU_REQUEST
    command = [sys.executable, "-m", "ciao_kernel.cli", "run", "--framework", "tensorflow"]
    command += ["--worker", "2", "--namespace", team.namespace.name, "train.py"]
    proxy.delay(1.5)
    with subprocess.Popen(
        command, cwd=team.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        until(lambda: any(one.startswith("ConfigMap/") for one in team.left()), "the source", 60)
        # Time to see the job, which comes next, before the answer; both ways may take 30 seconds.
        proxy.delay(12)
        until(lambda: any(one.startswith("TFJob/") for one in team.left()), "the job", 60)
        proxy.stall()  # so that the answer never comes
        process.send_signal(signal.SIGINT)
        assert process.stdout
        said = ""
        while "has not answered yet" not in said:  # seconds later, for it hopes for an answer
            line = process.stdout.readline().decode()
            assert line, said
            said += line
        proxy.pass_on()
        said += process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130, said
    assert "may exist: the API server has not answered yet" in said
    assert "is removed." in said
    # What hangs from the job is collected behind it.
    until(lambda: not team.left(), f"everything to be gone, after {said!r}", 60)


@pytest.mark.second("faults")
def test_a_deletion_that_fails_is_told(team: Team, proxy: Proxy) -> None:
    async def main() -> None:
        registry, display = Registry({}), Recorder()
        session = kernel_session(team, registry, request_patience=6.0)
        work = asyncio.ensure_future(session.run(WAIT, display, team.folder))
        await wrote(display, "here", "worker-1")
        proxy.refuse()
        await interrupted(work)
        assert display.job
        name = display.job.name
        await said(display, f"{name} could not be stopped: the cluster of")
        assert f"It may still run; `%ciao delete {name}` tries again." in display.notices
        proxy.pass_on()
        backend, job, _ = await session.find(name)
        await backend.delete(job)
        await registry.close()

    asyncio.run(main())
    assert team.left() == []


def test_a_second_press_ends_the_cell_at_once(team: Team) -> None:
    async def main() -> None:
        registry, display = Registry({}), Recorder()
        lifetime = Undecided()
        session = kernel_session(team, registry, lifetime)
        work = asyncio.ensure_future(session.run(WAIT, display, team.folder))
        await wrote(display, "here", "worker-0")
        work.cancel()
        await said(display, "if the kernel is being shut down")
        assert display.job
        name = display.job.name
        await interrupted(work)
        assert f"{name} is stopped" not in display.notices
        assert f"TFJob/{name}" in team.left()
        lifetime.decided.set()
        await said(display, f"{name} is stopped; nothing of it is left in")
        await registry.close()

    asyncio.run(main())
    assert team.left() == []
