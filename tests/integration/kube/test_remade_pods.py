"""A pod that is made again under its name while nobody tells: a loopback API server does so."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.apis import job_metadata, operator_v1
from ciao_kernel.backends.kubernetes.following.follow import follow
from ciao_kernel.config import Settings
from ciao_kernel.kube import logs
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Notice, Output, Replica, Status
from tests.integration.kube.test_credentials import run
from tests.integration.kube.test_responses import access, serving

WORKER = Replica("worker", 0)
JOB = Job("mine", "kubernetes", "tensorflow", (WORKER,), 0.0, "team", uid="j")
PATH = job_metadata.path("team", "tfjobs", "mine")


def pod(uid: str, phase: str = "Running") -> dict[str, Any]:
    state = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 0}}
    container = {"name": "c", "containerID": f"c-{uid}", "restartCount": 0, "state": state}
    labels = {operator_v1.ROLE_LABEL: "worker", operator_v1.INDEX_LABEL: "0"}
    meta = {
        "name": "mine-worker-0",
        "uid": uid,
        "labels": labels,
        "ownerReferences": [{"uid": "j"}],
    }
    times = {"a": "2026-11-21T10:00:00Z", "b": "2026-11-21T10:05:00Z"}
    return {
        "metadata": {**meta, "creationTimestamp": times[uid]},
        "spec": {"nodeName": "n", "restartPolicy": "Never", "containers": [{"name": "c"}]},
        "status": {"phase": phase, "containerStatuses": [container]},
    }


def lines(*words: str) -> bytes:
    return b"".join(
        f"2026-11-21T10:0{5 * (word[0] == 'b')}:0{word[1]}.000000000Z {word}\n".encode()
        for word in words
    )


class Cluster:
    """Pod b takes the place of a after the first answer of a's log; the pods' watch is dead.

    Args:
        first: That answer, which is cut.
        second: The log of b.
    """

    def __init__(self, first: bytes, second: bytes) -> None:
        self._first, self._second, self._logs = first, second, 0
        self.asked_by_name = False
        """The pod of the name was asked for."""
        self.tells = asyncio.Event()
        """From now on the watches tell all."""
        notes = job_metadata.notes(JOB, "run", WORKER, [])
        self._job = {"metadata": {"name": "mine", "uid": "j", "annotations": notes}, "status": {}}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path.endswith("/log"):
            self._logs += 1
            if self._logs > 1:
                return web.Response(body=self._second)
            return await self._stream(request, self._first)
        if "watch" in request.query:
            succeeded = {"conditions": [{"type": "Succeeded", "status": "True"}]}
            events = [("MODIFIED", {**self._job, "status": succeeded})]
            if path.endswith("/pods"):
                events = [("DELETED", pod("a")), ("ADDED", pod("b", "Succeeded"))]
            await self.tells.wait()
            told = [json.dumps({"type": kind, "object": one}) + "\n" for kind, one in events]
            return await self._stream(request, "".join(told).encode(), 3600.0)
        items = [pod("a")] if path.endswith("/pods") else [self._job]
        if request.query.get("fieldSelector") == "metadata.name=mine-worker-0":
            items, self.asked_by_name = [pod("b", "Succeeded")], True
        return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})

    async def _stream(
        self, request: web.Request, data: bytes, stays: float = 0.0
    ) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(data)
        await asyncio.sleep(stays)
        assert request.transport
        request.transport.abort()
        return answer

    @property
    def logs_asked(self) -> int:
        return self._logs


@pytest.mark.parametrize("second", [lines("b1", "b2"), lines("b1")[:-1]], ids=["lines", "a part"])
@pytest.mark.parametrize("first", [(), ("a1", "a2")], ids=["silent", "with lines"])
def test_the_lines_of_a_remade_pod_come_once(
    first: tuple[str, ...], second: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LATE", 0.3)

    async def work() -> None:
        cluster = Cluster(lines(*first), second)
        said, notices = b"", []

        async def tell() -> None:
            """After the reader has found the log of the new pod, or has taken it for its own."""
            while not cluster.asked_by_name and cluster.logs_asked < 12:
                await asyncio.sleep(0.01)
            cluster.tells.set()

        async with serving(cluster.answer) as host:
            telling = asyncio.create_task(tell())
            async with Client(access(host, "a")) as client:
                events = follow(client, JOB, PATH, tmp_path, Settings())
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, Output):
                            said += event.data
                        elif isinstance(event, Notice):
                            notices.append(event.text)
                        elif isinstance(event, Status) and event.settled:
                            break
            await telling
        assert said.decode().split() == [*first, *second.decode().split()[1::2]]
        after = "after 10:00:02 UTC" if first else "of its log"
        assert notices == [f"[worker-0] Lines {after} may be lost: mine-worker-0 was made again."]

    run(work)
