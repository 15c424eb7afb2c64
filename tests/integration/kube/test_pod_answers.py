"""A program in a pod that prints without end, or never answers: its kernel must not suffer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.existing import debugging, stacks, usage
from ciao_kernel.backends.kubernetes.existing.pod_program import EnteredPods
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica
from ciao_kernel.model.queries import Streams
from tests.integration.kube.test_responses import access, serving

PIECE, PIECES = b"x" * (1 << 15), 300
OUT, ERR = b"\x01", b"\x02"
DONE = b'\x03{"metadata": {}, "status": "Success"}'
CAUSES = {"causes": [{"reason": "ExitCode", "message": "9"}]}
FAILED = b"\x03" + json.dumps({"status": "Failure", "details": CAUSES}).encode()

WORKER = Replica("worker", 0)
JOB = Job("mine", "kubernetes", "pytorch", (WORKER,), 0.0, "team", kind_of_place="namespace")
POD: Manifest = {
    "metadata": {"name": "mine-worker-0", "labels": {}},
    "spec": {"containers": [{"name": "program"}]},
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "program", "state": {"running": {}}, "ready": True}],
    },
}
RULE = {"verbs": ["get", "create"], "apiGroups": [""], "resources": ["pods/exec"]}
REVIEW = {"status": {"incomplete": False, "resourceRules": [RULE]}}


def ask(
    work: Callable[[Client], Awaitable[Any]],
    stream: bytes,
    *,
    ends: bytes = DONE,
    silent: bool = False,
) -> Any:
    """Ask a pod that prints 10 MB, or nothing."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/exec"):
            return web.json_response(REVIEW)
        channel = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await channel.prepare(request)
        with contextlib.suppress(ConnectionError):
            if silent:
                async for _ in channel:
                    pass
            await channel.send_bytes(stream + b"first ")
            for _ in range(PIECES):
                await channel.send_bytes(stream + PIECE)
            await channel.send_bytes(ends)
            await channel.close()
        return channel

    async def main() -> Any:
        async with asyncio.timeout(60), serving(handler) as host, Client(access(host)) as client:
            return await work(client)

    return asyncio.run(main())


def pods(client: Client) -> EnteredPods:
    return EnteredPods(client, JOB, {WORKER: POD}, "python3")


def stacks_of(client: Client) -> Awaitable[Any]:
    return stacks.stacks(pods(client), [WORKER])


def samples_of(client: Client) -> Awaitable[Any]:
    return stacks.samples(pods(client), [WORKER], 1.0)


@pytest.mark.parametrize("work", [stacks_of, samples_of])
def test_stacks_without_end_are_a_fault(work: Callable[[Client], Awaitable[Any]]) -> None:
    (found,) = ask(work, OUT)
    assert found.fault == "its answer has more than 4,096 KiB"


def test_a_reading_without_end_is_a_fault() -> None:
    one = ask(lambda client: usage._enter(pods(client), WORKER), OUT)
    assert one.fault == "its answer has more than 64 KiB"


def test_an_answer_to_halt_without_end_is_an_error() -> None:
    with pytest.raises(BackendError, match="its answer has more than"):
        ask(lambda client: debugging.halt(pods(client), WORKER), OUT)


def test_a_node_that_does_not_answer_halt_is_an_error() -> None:
    with pytest.raises(BackendError, match="its node did not answer"):
        ask(lambda client: debugging.halt(pods(client), WORKER, within=0.2), OUT, silent=True)


def test_of_the_errors_of_an_open_prompt_only_the_end_is_kept() -> None:
    streams = Streams(lambda _: None, lambda _: None)

    async def debug(client: Client) -> bool:
        return await debugging.debug(pods(client), WORKER, 0, streams)

    with pytest.raises(BackendError, match="ended with code 9: xxx"):
        ask(debug, ERR, ends=FAILED)
