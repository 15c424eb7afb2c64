"""The log of a pod is written while it comes: a loopback API server sends it in two halves."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.apis import operator_v1
from ciao_kernel.backends.kubernetes.existing import logs
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions
from tests.integration.kube.test_credentials import run
from tests.integration.kube.test_responses import client

WORKER = Replica("worker", 0)
JOB = Job("mine", "kubernetes", "tensorflow", (WORKER,), 0.0, "team", uid="j")
COUNT = 6_000


def texts(first: int, last: int) -> bytes:
    return b"".join(b"line %06d %b\n" % (number, b"x" * 40) for number in range(first, last))


def stamped(first: int, last: int) -> bytes:
    lines = texts(first, last).splitlines(keepends=True)
    stamps = (
        b"2026-11-21T10:%02d:%02d.000000000Z " % divmod(n // 10, 60) for n in range(first, last)
    )
    return b"".join(stamp + line for stamp, line in zip(stamps, lines, strict=True))


class Cluster:
    """A pod whose log comes in two halves; the second one when it is allowed, or never.

    Args:
        cuts: Whether the connection is closed in place of the second half.
        first: Number of its first line, if the node has dropped those before.
        half: Number of the first line of the second half.
        ended: Whether the container has ended.
    """

    def __init__(
        self, *, cuts: bool = False, first: int = 0, half: int = COUNT // 2, ended: bool = False
    ) -> None:
        self.cuts, self.first, self.half, self.ended = cuts, first, half, ended
        self.goes_on = asyncio.Event()
        self.queries: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            return web.json_response({"items": [self._pod()], "metadata": {}})
        self.queries.append(dict(request.query))
        if since := request.query.get("sinceTime", ""):
            lines = stamped(self.first, COUNT).splitlines(keepends=True)
            return web.Response(
                body=b"".join(one for one in lines if one[:19] >= since[:19].encode())
            )
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(stamped(self.first, self.half) + stamped(self.half, self.half + 1)[:40])
        if self.cuts:
            assert request.transport
            request.transport.close()
            return answer
        await self.goes_on.wait()
        if not self.ended:  # the kubelet of one that has ended cuts its answer
            await answer.write(stamped(self.half, COUNT)[40:])
        return answer

    def _pod(self) -> dict[str, Any]:
        labels = {operator_v1.ROLE_LABEL: "worker", operator_v1.INDEX_LABEL: "0"}
        owners = [{"uid": "j"}]
        meta = {"name": "a", "labels": labels, "ownerReferences": owners, "creationTimestamp": "1"}
        phase = "Succeeded" if self.ended else "Running"
        spec = {"containers": [{"name": "c"}]}
        return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


async def found(
    cluster: Cluster, made: Client, kept: Path, options: LogOptions = WHOLE_LOG
) -> tuple[bytes, ClusterFault | None]:
    """Return a log and its error; the server goes on once the first lines are here."""
    said = bytearray()
    async with aclosing(logs.stream(made, JOB, WORKER, options, kept)) as pieces:
        try:
            async for piece in pieces:
                said += piece
                if b"line %06d" % cluster.first in said:
                    cluster.goes_on.set()
        except ClusterFault as fault:
            return bytes(said), fault
    return bytes(said), None


@pytest.mark.parametrize("ended", [False, True], ids=["runs", "ended"])
@pytest.mark.parametrize("timestamps", [False, True])
def test_the_second_half_may_come_when_the_first_is_written(
    ended: bool, timestamps: bool, tmp_path: Path
) -> None:
    async def work() -> None:
        cluster = Cluster(ended=ended)
        options = LogOptions(timestamps=timestamps)
        async with client(cluster.answer) as made:
            said, fault = await found(cluster, made, tmp_path / "no", options)
            assert (said, fault) == ((stamped if timestamps else texts)(0, COUNT), None)
            assert len(cluster.queries) == (3 if ended else 1)
            assert await logs.read(made, JOB, WORKER, options, tmp_path / "no") == said

    run(work)


def test_a_log_that_lost_its_beginning_has_it_from_the_saved_one(tmp_path: Path) -> None:
    kept = tmp_path / "worker-0.log"
    kept.write_bytes(texts(0, 4_000))

    async def work() -> None:
        cluster = Cluster(first=1_000, half=5_000)
        async with client(cluster.answer) as made:
            assert await found(cluster, made, kept) == (texts(0, COUNT), None)

    run(work)


@pytest.mark.parametrize("has_saved", [False, True])
def test_a_log_that_is_cut_has_each_line_once_and_an_error(has_saved: bool, tmp_path: Path) -> None:
    kept = tmp_path / "worker-0.log"
    if has_saved:
        kept.write_bytes(texts(0, COUNT))

    async def work() -> None:
        cluster = Cluster(cuts=True)
        async with client(cluster.answer) as made:
            said, fault = await found(cluster, made, kept)
            assert fault is not None
            assert said
            assert texts(0, cluster.half).startswith(said)
            assert fault.message.startswith("the log of worker-0 is not complete: ")
            assert (str(kept) in fault.hint) == has_saved

    run(work)


def test_a_log_that_is_cut_before_anything_is_written_is_the_saved_one(tmp_path: Path) -> None:
    kept, told = tmp_path / "worker-0.log", list[str]()
    options = LogOptions(tell=told.append)

    async def work() -> None:
        cluster = Cluster(cuts=True, half=20)
        async with client(cluster.answer) as made:
            said, fault = await found(cluster, made, kept, options)
            assert said == b""
            assert fault is not None
            assert not isinstance(fault, Refused)
            kept.write_bytes(texts(0, 30))
            assert await found(cluster, made, kept, options) == (texts(0, 30), None)
            assert [text.partition(" until ")[0] for text in told] == [
                "the lines of worker-0 are those saved on this machine"
            ]

    run(work)


def test_a_refusal_is_the_servers_and_comes_before_any_line(tmp_path: Path) -> None:
    async def forbids(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            return web.json_response({"items": [Cluster()._pod()], "metadata": {}})
        status = {"message": "pods/log is forbidden", "reason": "Forbidden"}
        return web.Response(status=403, body=json.dumps(status).encode())

    async def work() -> None:
        async with client(forbids) as made:
            with pytest.raises(Refused, match="pods/log is forbidden"):
                await anext(logs.stream(made, JOB, WORKER, WHOLE_LOG, tmp_path / "no"))

    run(work)
