"""%tensorboard on a cluster: copies of the event files of pods, by exec, in a real TensorBoard."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.model import TensorBoard
from ciao_kernel.session import fetching
from ciao_kernel.session.session import Session
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import EXEC, JOBS, Team, made, rules
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
            (team.folder / "go").write_text("on")
            backend, job, _ = await session.find("mnist")
            for replica in job.replicas:
                await fetching.give(
                    backend, job, replica, team.folder / "go", "./", session.settings
                )
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
