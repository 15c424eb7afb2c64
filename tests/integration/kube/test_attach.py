"""The input of a container over a connection that stays open, against a server of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import WSMsgType, web

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.attach import ContainerInput
from ciao_kernel.kube.channel import PIECE
from ciao_kernel.kube.client import Client
from tests.integration.kube.test_responses import access, serving

POD = "/api/v1/namespaces/team/pods/a"
GONE = {"status": "Failure", "message": "container not found in pod a", "code": 404}
STATUS = b"\x03" + json.dumps(GONE).encode()
Channel = web.WebSocketResponse


def run(
    server: Callable[[Channel, int], Awaitable[None]],
    client: Callable[[ContainerInput], Awaitable[None]],
) -> None:
    """Let a client write to a server, which gets the number of each connection too."""
    opened = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal opened
        opened += 1
        assert request.path == f"{POD}/attach"
        assert request.query["stdin"] == "true"
        channel = Channel(protocols=("v5.channel.k8s.io",))
        await channel.prepare(request)
        await server(channel, opened)
        return channel

    async def main() -> None:
        async with (
            asyncio.timeout(30),
            serving(handler) as host,
            Client(access(host)) as connections,
        ):
            source = ContainerInput(connections, POD, "main")
            try:
                await client(source)
            finally:
                await source.close()

    asyncio.run(main())


def test_commands_come_whole_and_in_pieces_over_one_connection() -> None:
    sent = [b"first\n", bytes(range(256)) * 1000, b"last\n"]
    got, whole = bytearray(), asyncio.Event()

    async def server(channel: Channel, number: int) -> None:
        assert number == 1
        async for message in channel:
            assert message.type is WSMsgType.BINARY
            assert message.data[0] == 0
            assert len(message.data) <= PIECE + 1
            got.extend(message.data[1:])
            if len(got) == len(b"".join(sent)):
                whole.set()

    async def client(source: ContainerInput) -> None:
        for data in sent:
            await source.send(data)
        await whole.wait()

    run(server, client)
    assert got == b"".join(sent)


def test_a_connection_that_has_ended_is_opened_again() -> None:
    got: list[tuple[int, bytes]] = []

    async def server(channel: Channel, number: int) -> None:
        async for message in channel:
            got.append((number, message.data[1:]))
            if number == 1:
                await channel.send_bytes(STATUS)
                return

    async def client(source: ContainerInput) -> None:
        await source.send(b"one")
        while (2, b"two") not in got:  # the end of the first one may not have been read yet
            await source.send(b"two")
            await asyncio.sleep(0.01)

    run(server, client)
    assert got[0] == (1, b"one")


def test_what_the_server_says_on_the_other_stream_is_the_reason() -> None:
    async def server(channel: Channel, number: int) -> None:
        await channel.send_bytes(STATUS)  # as of a container that has ended
        await channel.close()

    async def client(source: ContainerInput) -> None:
        with pytest.raises(ClusterFault, match="could not be sent: container not found in pod a"):
            await source.send(bytes(50_000_000))

    run(server, client)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (403, "you may not write to replicas in the namespace team: create pods/attach"),
        (404, "the pod a is gone"),
        (500, "nothing can be sent to a now: the server answered 500"),
    ],
)
def test_a_refusal_is_said(code: int, words: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise {403: web.HTTPForbidden, 404: web.HTTPNotFound, 500: web.HTTPInternalServerError}[
            code
        ]()

    async def main() -> None:
        async with (
            asyncio.timeout(30),
            serving(handler) as host,
            Client(access(host)) as connections,
        ):
            source = ContainerInput(connections, POD, "main")
            with pytest.raises(Refused, match=words) as caught:
                await source.send(b"x")
            await source.close()
            assert ("warm-role.yaml" in caught.value.hint) is (code == 403)

    asyncio.run(main())
