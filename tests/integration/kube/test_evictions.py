"""A pod of a followed job is evicted while its replicas write; the cluster is on the loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.errors import CiaoError, JobFailed
from ciao_kernel.session.session import Session
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import ApiServer
from tests.helpers.api_user import Here, run
from tests.helpers.jobs import Recorder

JOB = "%framework=tensorflow\n%name=mine\n%worker=3\npass"


async def numbered(pod: Pod) -> int:
    """Write a line each millisecond, and a last one after SIGTERM."""
    number = 0
    try:
        while True:
            pod.print(f"{number:06d}")
            number += 1
            await asyncio.sleep(0.001)
    except asyncio.CancelledError:
        await asyncio.sleep(0.3)
        pod.print("last words")
    return 1 if pod.number == 1 else 143  # as torchrun, which makes 1 of a signal


@pytest.mark.stands_for("oldest", only="0")
@pytest.mark.stands_for("trials")
@pytest.mark.parametrize("number", [0, 1])
def test_an_evicted_replica_is_named_and_every_line_comes(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = Recorder()

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        cell = asyncio.ensure_future(run(session, JOB, display, tmp_path))
        await display.until("000020", replica=f"worker-{number}")
        await asyncio.to_thread(server.evict, f"mine-worker-{number}")
        return await cell

    with ApiServer(tmp_path, numbered) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        error = Here(server, tmp_path).do(work)
    assert isinstance(error, JobFailed)
    why = "evicted, as when its node is drained"
    assert error.message == f"the pod of worker-{number} was {why}."
    for replica in ("worker-0", "worker-1", "worker-2"):
        *lines, last = display.data(replica).decode().splitlines()
        assert last == "last words"
        assert lines == [f"{n:06d}" for n in range(len(lines))]
