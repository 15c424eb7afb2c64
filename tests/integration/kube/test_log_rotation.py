"""A node rotates a log that is followed: nothing is lost or doubled without a word."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from ciao_kernel.kube.logs import ContainerLog, Gap
from tests.cluster.faults.proxy import Proxy
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import NAMESPACE, ApiServer
from tests.helpers.views import polled
from tests.integration.kube.test_following_faults import PATH, connected, manifest, until

BATCH = 50
POD = "waves-worker-0"
STEP = 10_000_000
"""Nanoseconds between lines."""


class Written:
    """A log of numbered lines, and what its reader got of it."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._now = time.time_ns()
        self.written = 0
        self.got: list[int] = []
        self.gaps = 0

    async def write(self) -> None:
        def add() -> None:
            times = (self._now + n * STEP for n in range(BATCH))
            lines = (b"%08d" % (self.written + n) for n in range(BATCH))
            self._server.pods[POD].log.write(zip(times, lines, strict=True))

        await asyncio.to_thread(self._server.call, add)
        self._now += BATCH * STEP
        self.written += BATCH

    async def rotate(self) -> None:
        await asyncio.to_thread(self._server.call, self._server.pods[POD].log.rotate)

    async def read(self, log: ContainerLog) -> None:
        async with aclosing(log.read()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Gap):
                    assert "the node rotated its log file" in piece.text
                    self.gaps += 1
                else:
                    self.got += map(int, piece.data.split())

    def whole(self) -> bool:
        return bool(self.got) and self.got[-1] == self.written - 1


def test_a_rotated_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rotations while it is read, and three behind the back of its reader."""
    lost: set[int] = set()

    async def program(pod: Pod) -> int:
        while not (tmp_path / "over").exists():
            await asyncio.sleep(0.01)
        return 0

    async def main(server: ApiServer, proxy: Proxy) -> Written:
        through = proxy.kubeconfig(tmp_path / "proxied")
        async with await connected(monkeypatch, through) as client:
            await client.create(PATH, manifest("waves"))
            async with polled(client, NAMESPACE, POD) as view:
                seen = Written(server)
                log = ContainerLog(client, NAMESPACE, POD, "tensorflow", view)
                work = asyncio.create_task(seen.read(log))
                for _ in range(3):
                    await seen.write()
                    await until(seen.whole, work)
                    await seen.rotate()
                    await seen.write()
                    await until(seen.whole, work)
                assert seen.gaps == 0
                for number in range(3):
                    await asyncio.to_thread(proxy.refuse)
                    lost.update(range(seen.written, seen.written + BATCH))
                    await seen.write()
                    await seen.rotate()
                    await seen.write()
                    await asyncio.to_thread(proxy.pass_on)
                    await until(seen.whole, work)
                    assert seen.gaps == number + 1
                (tmp_path / "over").touch()
                async with asyncio.timeout(60):
                    await work
        return seen

    with ApiServer(tmp_path, program) as server, Proxy(server.at, server.port) as proxy:
        seen = asyncio.run(main(server, proxy))
    assert seen.got == [number for number in range(seen.written) if number not in lost]
    assert seen.gaps == 3
