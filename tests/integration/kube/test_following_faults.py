"""A job is followed while its connections are harmed in each way that a network knows.

Every line arrives once and in order, on the screen and in the saved logs. ``CIAO_TEST_LINES`` sets
the number of lines of each mode.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.following import follow, replica_tracker
from ciao_kernel.config import Settings
from ciao_kernel.kube import access
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.logs import ContainerLog
from ciao_kernel.model import Job, Notice, Output, Replica, State, Status
from tests.cluster.faults.proxy import Proxy
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import NAMESPACE, ApiServer

LINES = int(os.environ.get("CIAO_TEST_LINES", "100000"))
FEW = 4_000
WORKERS = 4
ROUNDS = 25
"""Times that the harm is done, to a log of many lines."""
PATH = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs"
SETTINGS = {"request_patience": 60.0, "follow_patience": 300.0}
_LINE = 50
"""Bytes of a line and its stamp, at least."""
STEP = 250_000
"""Nanoseconds between lines; a request repeats those of a second or two."""


@dataclass(frozen=True)
class Mode:
    """One way to harm connections, from some byte on, and whether they end by it."""

    harm: Callable[[Proxy, int], None]
    ends: bool = True


MODES = {
    "reset": Mode(lambda p, _: p.reset()),
    "reset-late": Mode(lambda p, byte: p.reset(after=byte)),
    "reset-inside-a-record": Mode(lambda p, _: p.reset(inside_record=True)),
    "close": Mode(lambda p, _: p.close()),
    "truncate": Mode(lambda p, byte: p.truncate(byte)),
    "delay": Mode(lambda p, _: p.delay(0.05), ends=False),
    "throttle": Mode(lambda p, _: p.throttle(1_000_000), ends=False),
    "stall": Mode(lambda p, _: p.stall()),
    "refuse": Mode(lambda p, _: p.refuse()),
}
each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


class Wave:
    """A job whose workers write numbered lines when they are told to.

    Args:
        server: The cluster.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.written = 0
        self._now = time.time_ns()
        self.text: dict[int, bytearray] = {number: bytearray() for number in range(WORKERS)}

    def write(self, lines: int) -> None:
        """Let every worker write so many lines."""

        def add() -> None:
            for number, text in self.text.items():
                new = [b"worker %d line %08d" % (number, self.written + n) for n in range(lines)]
                pod = self._server.pods[f"waves-worker-{number}"]
                pod.log.write((self._now + n * STEP, line) for n, line in enumerate(new))
                text += b"\n".join([*new, b""])

        self._server.call(add)
        self._now += lines * STEP
        self.written += lines


class Followed:
    """What came of a followed job, compared with what was written as it comes."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self.size = dict.fromkeys(range(WORKERS), 0)
        self.notices: list[str] = []
        self.status: Status | None = None

    def take(self, event: Any) -> None:
        if isinstance(event, Status):
            self.status = event
        elif isinstance(event, Notice):
            self.notices.append(event.text)
        elif isinstance(event, Output):
            number = event.replica.index
            begin = self.size[number]
            self.size[number] += len(event.data)
            wanted = self._wave.text[number][begin : self.size[number]]
            assert event.data == wanted, _difference(event.data, bytes(wanted))

    async def follow(self, client: Client, job: Job, logs: Path) -> None:
        settings = Settings(**SETTINGS)
        path = f"{PATH}/{job.name}"
        async with aclosing(follow.follow(client, job, path, logs, settings)) as events:
            async for event in events:
                self.take(event)


def _difference(got: bytes, wanted: bytes) -> str:
    pairs = zip(got.split(b"\n"), wanted.split(b"\n"), strict=False)
    one, other = next(((a, b) for a, b in pairs if a != b), (got[-40:], wanted[-40:]))
    return f"came {one[:60]!r}, which should be {other[:60]!r}"


async def until(true: Callable[[], object], work: asyncio.Task[None]) -> None:
    """Wait for something; the work that fails meanwhile ends the test with its own error."""
    async with asyncio.timeout(120):
        while not true():
            if work.done():
                work.result()
                assert true(), "it ended before"
                return
            await asyncio.sleep(0.005)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    """A cluster whose programs run until a file exists: what they write is the test's."""

    async def program(pod: Pod) -> int:
        while not (tmp_path / "over").exists():
            await asyncio.sleep(0.01)
        return 0

    with ApiServer(tmp_path, program) as made:
        yield made


def manifest(name: str) -> dict[str, Any]:
    template = {"metadata": {}, "spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    worker = {"replicas": WORKERS, "restartPolicy": "Never", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "annotations": {"ciao-kernel/decider": "worker-0"}},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }


async def connected(monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> Client:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return Client(await access.load())


async def harmed(
    server: ApiServer, mode: Mode, lines: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Follow a job through a proxy that does harm; return the figures."""
    chance = random.Random(lines)
    rounds = ROUNDS if lines > FEW else ROUNDS // 5
    each = max(1, lines // WORKERS // rounds // 2)
    replicas = tuple(Replica("worker", number) for number in range(WORKERS))
    wave = Wave(server)
    with Proxy(server.at, server.port) as proxy:
        async with await connected(monkeypatch, proxy.kubeconfig(folder / "proxied")) as client:
            made = await client.create(PATH, manifest("waves"))
            await asyncio.to_thread(_wait_for_pods, server)
            job = Job(
                "waves", "kubernetes", "tensorflow", replicas, time.time(), NAMESPACE,
                kind_of_place="namespace", resource="tfjobs", uid=made["metadata"]["uid"],
            )  # fmt: skip
            seen = Followed(wave)
            began = time.monotonic()
            work = asyncio.create_task(seen.follow(client, job, folder / "logs"))
            try:
                for _ in range(rounds):
                    await asyncio.to_thread(wave.write, each)
                    before, accepted = dict(seen.size), proxy.traffic.accepted
                    byte = chance.randrange(1, each * _LINE)
                    await asyncio.to_thread(mode.harm, proxy, byte)
                    await asyncio.to_thread(wave.write, each)
                    if mode.ends:
                        await until(
                            lambda known=accepted: (
                                proxy.traffic.accepted >= known + WORKERS
                                or not proxy.traffic.present
                            ),
                            work,
                        )
                        await asyncio.to_thread(proxy.pass_on)
                    await until(lambda known=before: _each_grew(known, seen.size), work)
                    await asyncio.to_thread(proxy.pass_on)
                whole = {number: len(text) for number, text in wave.text.items()}
                await until(lambda: seen.size == whole, work)
                seconds = time.monotonic() - began
                (folder / "over").touch()
                async with asyncio.timeout(60):
                    await work
            finally:
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
    assert seen.status
    assert (seen.status.state, seen.status.settled) == (State.SUCCEEDED, True)
    assert not [text for text in seen.notices if "lost" in text]
    assert seen.size == whole
    for number, text in wave.text.items():
        assert (folder / "logs" / f"worker-{number}.log").read_bytes() == text
    total = wave.written * WORKERS
    return (
        f"{total:,} lines, 0 lost, 0 doubled; {total / seconds:,.0f} lines/s, "
        f"{server.log_requests} requests for logs, {seconds:.1f} s"
    )


def _each_grew(before: dict[int, int], now: dict[int, int]) -> bool:
    return all(now[number] > size for number, size in before.items())


def _wait_for_pods(server: ApiServer) -> None:
    deadline = time.monotonic() + 30
    while len(server.pods) < WORKERS:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent connection counts as dead after half a second, so that a stall ends it."""
    log = partial(ContainerLog, read_timeout=0.5)
    monkeypatch.setattr(replica_tracker, "ContainerLog", log)


@pytest.mark.second("trials")
@pytest.mark.timeout(300 + LINES // 1000)
@pytest.mark.usefixtures("impatient")
@each_mode
def test_every_line_comes_once_through_each_fault(
    mode: Mode,
    server: ApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    figure(asyncio.run(harmed(server, mode, LINES, tmp_path, monkeypatch)))


@pytest.mark.stands_for("trials")
@pytest.mark.parametrize("mode", [MODES["truncate"]], ids=["truncate"])
def test_a_few_lines_come_once_through_a_fault(
    mode: Mode,
    server: ApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    figure(asyncio.run(harmed(server, mode, FEW, tmp_path, monkeypatch)))
