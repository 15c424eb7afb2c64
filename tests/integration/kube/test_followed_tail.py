"""``ciao logs -f --tail`` of a replica whose container restarts in its pod."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.commands import Caller, execute
from ciao_kernel.session.session import Session
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import ApiServer
from tests.helpers.api_user import Here, run
from tests.helpers.jobs import Recorder

CELL = "%framework=tensorflow\n%name=mine\n%worker=1\npass"
POD = "mine-worker-0"
SAME = ("begins", "step 1", "step 2")
"""What each run of a program writes first."""


class Writer:
    """Writes what the test says, until it says that the program is over."""

    def __init__(self) -> None:
        self.over = False

    async def __call__(self, pod: Pod) -> int:
        while not self.over:
            await asyncio.sleep(0.01)
        return 0


async def tell(server: ApiServer, *lines: str) -> None:
    await asyncio.to_thread(server.call, lambda: server.pods[POD].print(*lines))


async def restart(server: ApiServer) -> None:
    await asyncio.to_thread(server.end_container, POD)
    await asyncio.to_thread(server.start_container, POD)


@pytest.mark.parametrize(("earlier", "saved"), [(0, True), (1, True), (1, False)])
def test_the_lines_of_a_restarted_container_come_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: int, saved: bool
) -> None:
    """Behind the last lines of before, also if each run writes the same; saved here or not."""
    program = Writer()
    shown = Recorder()

    async def work(session: Session, backend: KubernetesBackend) -> None:
        display, folder = Recorder(), tmp_path if saved else tmp_path / "elsewhere"
        running = asyncio.ensure_future(run(session, CELL, display, tmp_path))
        while POD not in server.pods:
            await asyncio.sleep(0.01)
        for _ in range(earlier):
            await tell(server, *SAME)
            await display.until("step 2")
            await restart(server)
        await tell(server, *SAME, "old 1", "old 2")
        await display.until("old 2")
        place = Here(server, folder)

        async def follow(session: Session, _: KubernetesBackend) -> None:
            caller = Caller(session, shown, lambda _: None, tmp_path)
            await execute(["logs", "-f", "--tail", "2", "mine"], caller)

        following = asyncio.create_task(asyncio.to_thread(place.do, follow))
        await shown.until("old 2")
        await restart(server)
        await tell(server, *SAME)
        await shown.until(*SAME)
        await restart(server)
        await tell(server, *SAME, "new")
        await shown.until("new")
        program.over = True
        await asyncio.gather(running, following)

    with ApiServer(tmp_path, program) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        Here(server, tmp_path).do(work)
    lines = ["old 1", "old 2", *SAME, *SAME, "new"]
    assert shown.data("worker-0").decode().splitlines() == lines
    assert "lost" not in shown.notices
