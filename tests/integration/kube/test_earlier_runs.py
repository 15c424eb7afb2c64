"""The next run of a name with %checkpoint waits for the one that still saves."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import ApiServer
from tests.helpers.api_user import OWNER, Here, run
from tests.helpers.jobs import Recorder, wait

CELL = "%framework=tensorflow\n%name=mine\n%worker=1\n%grace=60s\n%checkpoint=runs\npass"


class Saves:
    """The first run ends, the second trains and saves as long as the test says, the third ends."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.may_end = threading.Event()

    async def __call__(self, pod: Pod) -> int:
        run = len([one for one in self.events if one.startswith("begins")]) + 1
        self.events.append(f"begins {pod.job}")
        pod.print("begins")
        if run != 2:
            return 0
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            while not self.may_end.is_set():
                await asyncio.sleep(0.01)
            self.events.append(f"saved {pod.job}")
        return 143


@pytest.mark.parametrize("same_process", [True, False])
def test_the_next_run_waits_for_a_stopped_one_with_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_process: bool
) -> None:
    program = Saves()

    def is_told() -> bool:
        return "deletionTimestamp" in server.store.get("pods", "mine-2-worker-0")["metadata"]

    async def work(session: Session, backend: KubernetesBackend) -> None:
        displays = [Recorder() for _ in range(3)]
        await run(session, CELL, displays[0], tmp_path)
        second = asyncio.ensure_future(run(session, CELL, displays[1], tmp_path))
        await displays[1].until("begins")
        other = Registry({})
        stopper = backend if same_process else Session(other, OWNER, here.settings).backend(None)
        job, _ = await stopper.find("mine-2")
        stopping = asyncio.ensure_future(stopper.stop(job, "stopped"))
        await wait(lambda: server.call(is_told))
        third = asyncio.ensure_future(run(session, CELL, displays[2], tmp_path))
        told = "waiting until stopped jobs of this name have ended: mine-2 …"
        await wait(lambda: third.done() or told in displays[2].notices)
        program.may_end.set()
        assert await third is None
        await asyncio.gather(second, stopping)
        await other.close()

    with ApiServer(tmp_path, program) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        claim = {"metadata": {"name": "runs"}, "spec": {"accessModes": ["ReadWriteMany"]}}
        server.call(lambda: server.store.create("persistentvolumeclaims", claim, "team"))
        here = Here(server, tmp_path)
        here.do(work)
    assert program.events[:3] == ["begins mine", "begins mine-2", "saved mine-2"]
    assert len(program.events) == 4
