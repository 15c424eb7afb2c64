"""%tensorboard on a cluster: copies of the event files of pods, by exec, in a real TensorBoard."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from ciao_kernel.model import TensorBoard
from ciao_kernel.session.session import Session
from ciao_kernel.session.tensorboard.board import Board, Reach
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import EXEC, JOBS, Team, let_go, made, rules
from tests.helpers import tensorboard
from tests.helpers.event_writer import WRITER
from tests.helpers.jobs import Recorder, wait

pytestmark = tensorboard.needs_tensorboard

CELL = (
    "%framework=tensorflow\n%worker=2\n%name=mnist\n%tensorboard=runs/one\n"
    + WRITER
    + """
events = Events(os.environ["CIAO_LOGDIR"])
events.scalar("loss", 0.5, 1)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.1)
events.scalar("loss", 0.25, 2)
print("done", flush=True)
"""
)


@pytest.fixture
def team(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user who may also run commands in pods."""
    return made(namespace, tmp_path, monkeypatch, [*rules(), *rules(JOBS), *rules(EXEC)])


def address(display: Recorder) -> str:
    found = [event for event in display.events if isinstance(event, TensorBoard)]
    return found[-1].address if found else ""


def test_event_files_of_pods_are_shown_while_they_grow_and_afterwards(team: Team) -> None:
    async def watch(session: Session) -> None:
        display = Recorder()
        running = asyncio.ensure_future(session.run(CELL, display, team.folder))
        try:
            await wait(lambda: bool(address(display)) or running.done(), 120)
            assert not running.done(), running
            await asyncio.to_thread(tensorboard.scalars, address(display), "mnist/worker-0", step=1)
            backend, job, _ = await session.find("mnist")
            # worker-0 last: its end is the job's, and others are ended with it.
            for replica in reversed(job.replicas):
                await display.until("ready", replica=str(replica), patience=120)
                # A node serves the log of a container before the API says that it runs.
                await asyncio.to_thread(team.namespace.wait_for_pod, f"mnist-{replica}", "Running")
                await let_go(team, backend, job, replica)
                await display.until("done", replica=str(replica))
            await running
            # The last step comes with the files that the pods keep: of all replicas.
            await asyncio.to_thread(
                tensorboard.scalars, address(display), "mnist/worker-0", "mnist/worker-1", step=2
            )
        finally:
            running.cancel()
            await session.board.close()

    async def show(session: Session) -> None:
        display = Recorder()
        try:
            backend, job, _ = await session.find("mnist")
            await session.board.show([(backend, job)], display.show)
            await asyncio.to_thread(tensorboard.scalars, address(display), "mnist/worker-0", step=2)
        finally:
            await session.board.close()

    team._ask(watch)
    team._ask(show)


@pytest.mark.second("operators")
def test_the_last_lines_of_a_detached_job_come_from_the_pod_that_is_held(
    team: Team, claim: str
) -> None:
    header = f"%api=job\n%detach\n%volume={claim}/team:runs\n"

    async def watch(session: Session) -> None:
        board = Board(lambda: session.settings, Reach)  # as a kernel has one
        try:
            await session.run(header + CELL, Recorder(), team.folder)
            backend, job, _ = await session.find("mnist")
            display = Recorder()
            await board.show([(backend, job)], display.show)
            show = partial(asyncio.to_thread, tensorboard.scalars, address(display))
            await show("mnist/worker-0", step=1)
            (writer, _) = job.replicas  # its end is the job's, and the other one's
            await let_go(team, backend, job, writer)
            await show("mnist/worker-0", step=2)
        finally:
            await board.close()

    team._ask(watch)
