"""GETs before the pool is open: few connections, what comes over them, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import light_requests, responses
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.identity import Identity
from ciao_kernel.kube.light_requests import LightRequests
from tests.integration.kube.test_responses import access, serving

pytestmark = pytest.mark.stands_for("oldest")

ITEM = {"kind": "Pod", "metadata": {"name": "a", "namespace": "team", "uid": "1"}}


class Recorder:
    """An API server that keeps the connection, the client and the path of each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0)
        assert request.transport is not None
        port = request.transport.get_extra_info("peername")[1]
        client = request.headers.get("User-Agent", "").partition("/")[0]
        self.seen.append((port, client, request.raw_path))
        return web.json_response(ITEM)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(main())


def test_many_gets_share_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light_requests, "_RESTS", 300.0)

    async def work() -> None:
        server = Recorder()
        async with serving(server.answer) as host, Client(access(host)) as client:
            for _ in range(3):
                await asyncio.gather(*(client.get(f"/x/{number}") for number in range(12)))
        assert len(server.seen) == 36
        assert 1 <= len({port for port, _, _ in server.seen}) <= 4

    run(work)


def test_what_needs_the_pool_takes_the_gets_with_it() -> None:
    async def work() -> None:
        server = Recorder()
        async with serving(server.answer) as host, Client(access(host)) as client:
            await client.get("/a")
            await client.text("/b")
            await client.get("/c")
        assert [(name, path) for _, name, path in server.seen] == [
            ("ciao-kernel", "/a"),
            ("Python", "/b"),
            ("Python", "/c"),
        ]

    run(work)


@pytest.mark.parametrize(
    ("path", "query", "asked"),
    [
        ("/api/v1/pods", {"labelSelector": "a=b,c", "limit": "5"},
         "/x/y/api/v1/pods?labelSelector=a%3Db%2Cc&limit=5"),
        ("/api/v1/pods/a b/ö", {}, "/x/y/api/v1/pods/a%20b/%C3%B6"),
    ],
)  # fmt: skip
def test_paths_are_below_that_of_the_address(path: str, query: Any, asked: str) -> None:
    async def work() -> None:
        server = Recorder()
        async with serving(server.answer) as host, Client(access(f"{host}/x/y")) as client:
            await client.get(path, **query)
        assert server.seen[0][2] == asked

    run(work)


def test_a_user_of_any_letters_is_named() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        names = request.headers.getall("Impersonate-Group")
        return web.json_response({"metadata": {"name": ",".join(names)}})

    async def work() -> None:
        groups = (("Impersonate-Group", "größe"), ("Impersonate-Group", "two"))
        who = Identity(acting_as=groups)
        async with serving(answer) as host, Client(access(host, who=who)) as client:
            assert (await client.get("/x"))["metadata"]["name"] == "größe,two"

    run(work)


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"])
def test_a_cancelled_get_leaves_neither_a_connection_nor_a_thread(begin: bytes) -> None:
    async def work() -> None:
        before = set(threading.enumerate())  # one of an earlier test may still end
        asked, left = asyncio.Event(), asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            await writer.drain()
            asked.set()
            await reader.read()
            left.set()
            writer.close()

        async with listening(silent) as host, Client(access(host)) as client:
            task = asyncio.create_task(client.get("/x"))
            await asked.wait()
            new = set(threading.enumerate()) - before
            (thread,) = [one for one in new if one.name == "ciao-request"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await left.wait()
            await asyncio.to_thread(thread.join, 30)
            assert not thread.is_alive()

    run(work)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DATA = json.dumps(ITEM).encode()


def packed(data: bytes) -> bytes:
    length = f"Content-Length: {len(data)}\r\n\r\n".encode()
    return HEAD + b"content-encoding: GZIP\r\n" + length + data


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (HEAD + b"\r\n" + DATA, ""),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(DATA), DATA), ""),
        (packed(gzip.compress(DATA)), ""),
        (packed(gzip.compress(DATA)[:-9]), "the answer is cut off"),
        (packed(DATA), "the answer is not gzip, as it says"),
        (packed(gzip.compress(b"x" * (2 << 20))), "answered with more than 1 MiB"),
        (HEAD + b"\r\n" + b"x" * (2 << 20), "answered with more than 1 MiB"),
        (HEAD + b"Content-Length: 99\r\n\r\n" + DATA, "the answer is cut off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n63\r\n" + DATA, "the answer is cut off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "the answer is cut off"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP"),
        (b"", "Remote end closed connection without response"),
    ],
)
def test_an_answer_is_whole_or_none(
    answer: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "_MOST", 1 << 20)

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            writer.write(answer)
            await writer.drain()
        writer.close()

    async def work() -> None:
        async with listening(say) as host, Client(access(host), 0) as client:
            if not said:
                assert await client.get("/x") == ITEM
                return
            with pytest.raises(ClusterFault) as caught:
                await client.get("/x")
            assert said in caught.value.message

    run(work)


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    """Its next request is sent again over a new one at once, and the client's patience is none."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + f"Content-Length: {len(DATA)}\r\n\r\n".encode() + DATA)
        await writer.drain()
        writer.close()

    async def work() -> None:
        async with listening(once) as host, Client(access(host), 0) as client:
            for _ in range(3):
                assert await client.get("/x") == ITEM

    run(work)


def test_new_credentials_have_connections_of_their_own() -> None:
    async def work() -> None:
        server = Recorder()
        async with serving(server.answer) as host:

            async def again(context: str) -> Access:
                return access(host, "new")

            async with Client(access(host, "old"), reload=again) as client:
                await client.get("/x")
                await client.renew()
                await client.get("/x")
        assert len({port for port, _, _ in server.seen}) == 2

    run(work)


@contextlib.asynccontextmanager
async def listening(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server of plain bytes on the loopback."""
    async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("address", "suits"),
    [
        ("https://10.0.0.1:6443", True),
        ("http://[::1]:8001/k8s/a%2Fb", True),
        ("https://api.example.com.:6443", False),
        ("https://[fe80::1%25eth0]:6443", False),
        ("https://user:word@api.example.com", False),
    ],
)
def test_what_the_library_of_the_pool_knows_better_goes_by_the_pool(
    address: str, suits: bool
) -> None:
    assert LightRequests.suits(access(address)) is suits
