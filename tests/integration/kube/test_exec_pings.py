"""A command that is silent for long: its connection stays in use, and a dead one is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import WSMsgType, web

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import exec as kube_exec
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.exec import execute
from ciao_kernel.model.queries import Streams
from tests.integration.kube.test_responses import access, serving

pytestmark = pytest.mark.stands_for("oldest")

DONE = b'\x03{"metadata": {}, "status": "Success"}'
INPUT, CLOSE = 0, 255
Server = Callable[[web.WebSocketResponse], Awaitable[None]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_exec, "_PING", 0.02)
    monkeypatch.setattr(kube_exec, "_UNANSWERED", 5)


def run(server: Server, *typed: bytes) -> int:
    """Run a command; the server answers no ping by itself."""

    async def handler(request: web.Request) -> web.StreamResponse:
        channel = web.WebSocketResponse(protocols=("v5.channel.k8s.io",), autoping=False)
        await channel.prepare(request)
        await server(channel)
        return channel

    async def pieces() -> AsyncIterator[bytes]:
        for piece in typed:
            yield piece

    async def main() -> int:
        source = pieces() if typed else None
        return await executed(handler, Streams(lambda _: None, lambda _: None, input=source))

    return asyncio.run(main())


async def executed(handler: Handler, streams: Streams) -> int:
    """Run a command against a server; return its exit code."""
    pod = "/api/v1/namespaces/team/pods/a"
    async with (
        asyncio.timeout(30),
        serving(handler) as host,
        Client(access(host)) as client,
    ):
        return await execute(client, pod, "main", ["sleep"], streams)


async def ends(channel: web.WebSocketResponse) -> None:
    await channel.send_bytes(DONE)
    await channel.close()


def test_a_silent_command_keeps_its_connection_in_use() -> None:
    async def server(channel: web.WebSocketResponse) -> None:
        for _ in range(20):
            message = await channel.receive()
            assert message.type is WSMsgType.PING
            await channel.pong(message.data)
        await ends(channel)

    assert run(server) == 0


def test_data_counts_as_an_answer() -> None:
    async def server(channel: web.WebSocketResponse) -> None:
        for _ in range(20):
            await channel.receive()
            await channel.send_bytes(b"\x01x")
        await ends(channel)

    assert run(server) == 0


def test_a_server_that_answers_no_ping_is_dead() -> None:
    async def server(channel: web.WebSocketResponse) -> None:
        message = await channel.receive()
        await channel.pong(message.data)
        while (await channel.receive()).type is WSMsgType.PING:
            pass

    with pytest.raises(ClusterFault, match="the server has not answered for"):
        run(server)


def test_a_server_that_waits_for_the_command_to_read_is_not_dead() -> None:
    async def server(channel: web.WebSocketResponse) -> None:
        pings = 0
        while pings < 20:
            message = await channel.receive()
            pings += message.type is WSMsgType.PING
        await ends(channel)

    assert run(server, b"words") == 0


def test_a_server_that_answers_again_and_then_dies_is_dead() -> None:
    async def server(channel: web.WebSocketResponse) -> None:
        taken = 0
        while taken < 2:  # the input and its end, which the command reads late
            message = await channel.receive()
            taken += message.type is WSMsgType.BINARY
        while (message := await channel.receive()).type is not WSMsgType.PING:
            pass
        await channel.pong(message.data)
        while (await channel.receive()).type is WSMsgType.PING:
            pass

    with pytest.raises(ClusterFault, match="the server has not answered for"):
        run(server, b"words")


def test_the_servers_own_pings_are_answered() -> None:
    async def server(channel: web.WebSocketResponse) -> None:
        await channel.ping(b"there?")
        while (message := await channel.receive()).type is not WSMsgType.PONG:
            pass
        assert message.data == b"there?"
        await ends(channel)

    assert run(server) == 0
