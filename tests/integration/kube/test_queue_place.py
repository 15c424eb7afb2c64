"""A job waits in a queue; Kueue's answers come over HTTP, and the cluster is on the loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Status
from ciao_kernel.session.session import Session
from tests.helpers import api_queue
from tests.helpers.api_queue import Places, Queue
from tests.helpers.api_server import ApiServer
from tests.helpers.api_user import Here, run
from tests.helpers.jobs import Recorder, wait

CELL = "%framework=tensorflow\n%name=mine\n%worker=1\n%queue=team\npass"


class Waiting:
    """A cell whose job waits in a queue until its status has a text.

    Args:
        folder: Of the cluster and its user.
        monkeypatch: For KUBECONFIG.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.display = Recorder()

    def said(self) -> list[str]:
        """What the states of the job said, each text once, in their order."""
        texts = [one.message for one in self.display.events if isinstance(one, Status)]
        return list(dict.fromkeys(texts))

    def follow(self, queue: Queue, text: str) -> None:
        """Run the cell; the job is admitted when a state has said this."""

        async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
            cell = asyncio.ensure_future(run(session, CELL, self.display, self.folder))
            await wait(lambda: text in self.said() and (queue.asked or queue.places is None))
            await asyncio.to_thread(server.admit, "mine")
            return await cell

        with ApiServer(self.folder) as server:
            server.queue = queue
            self.monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
            assert Here(server, self.folder).do(work) is None
        assert b"hello from mine-worker-0" in self.display.data("worker-0")


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(tmp_path, monkeypatch)


def test_a_job_that_waits_shows_its_place_in_line(waiting: Waiting) -> None:
    def places() -> list[str]:
        assert waiting.display.job
        return ["of another", waiting.display.job.uid]

    text = "waits in queue team, 2nd in line: no room"
    waiting.follow(Queue(places), text)
    states = [one for one in waiting.display.events if isinstance(one, Status)]
    assert {one.word for one in states if one.message == text} == {"Queued"}


@pytest.mark.parametrize(
    "places",
    [None, api_queue.forbidden, api_queue.unavailable, lambda: ["of another"]],
    ids=["not served", "forbidden", "away", "not listed"],
)
def test_a_place_that_nobody_tells_is_left_out_without_a_word(
    places: Places | None, waiting: Waiting
) -> None:
    waiting.follow(Queue(places), "waits in queue team: no room")
    assert not any("in line" in text for text in waiting.said())
    assert "pendingworkloads" not in waiting.display.notices
