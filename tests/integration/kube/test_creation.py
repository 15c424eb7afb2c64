"""A submission whose connections are cut, or whose process is killed, between its requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import creation, source_owners, unfinished
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Event
from tests.helpers.api_objects import ApiObjects
from tests.integration.kube.test_responses import access, client, serving
from tests.unit.backends.kubernetes.lifecycle.test_creation import MAPS, ROLE, WHOLE, made, owned

WRITES = ("POST", "PATCH")
LONG_AGO = 1000.0


class Server:
    """An API server that can cut a connection: before it does what was asked, or after.

    Args:
        objects: its objects.
    """

    def __init__(self, objects: ApiObjects) -> None:
        self.objects = objects
        self.cut: tuple[int, str] | None = None
        """Number of the request that changes something, and ``before`` or ``after``."""
        self.for_good = False
        """All later requests are cut too: the network is gone."""
        self.hangs = False
        """It does not cut, but leaves the request without an answer."""
        self.reached = asyncio.Event()
        self._count = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read() or "null")
        writes = request.method in WRITES and not request.path.endswith("reviews")
        here = self.cut is not None and writes and self._count == self.cut[0]
        gone = self.for_good and self.reached.is_set()
        self._count += writes
        if gone or (here and self.cut == (self._count - 1, "before")):
            return await self._end(request)
        code, found = self.objects.answer(request.method, request.path, request.query, body)
        if here:
            return await self._end(request)
        return web.json_response(found, status=code)

    async def _end(self, request: web.Request) -> web.StreamResponse:
        self.reached.set()
        if self.hangs:
            await asyncio.Event().wait()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


CUTS = pytest.mark.parametrize(
    ("rules", "number"),
    [*(((), number) for number in range(5)), *((ROLE, number) for number in range(3))],
    ids=lambda value: str(value) if isinstance(value, int) else ("role" if value else "all"),
)
"""Each request that changes something: in the usual order, and with the required rights only."""
POINTS = pytest.mark.parametrize("when", ["before", "after"])


@pytest.mark.second("faults", only="role")
@pytest.mark.stands_for("oldest", only="all")
@CUTS
@POINTS
def test_a_connection_that_is_cut_once_changes_nothing(
    rules: tuple[dict[str, list[str]], ...], number: int, when: str
) -> None:
    server = Server(ApiObjects(*rules))
    server.cut = number, when

    async def main() -> None:
        async with client(server.answer, patience=20) as api:
            await creation.create(Target(api, "team"), made(), print)
            await source_owners.wait_until_all_owned(60)

    asyncio.run(main())
    assert server.objects.names() == WHOLE
    assert owned(server.objects)


@pytest.mark.second("faults", only="role")
@CUTS
@POINTS
def test_after_an_outage_the_next_kernel_settles_what_is_left(
    rules: tuple[dict[str, list[str]], ...], number: int, when: str
) -> None:
    """Neither the rest of the submission nor its removal reached the server.

    A job that lacks nothing but the owner of its sources runs.
    """
    server = Server(ApiObjects(*rules, created=time.time() - LONG_AGO))
    server.cut, server.for_good = (number, when), True
    shown: list[Event] = []

    async def main() -> None:
        async with client(server.answer) as api:
            target = Target(api, "team")
            runs = not rules and number >= len(WHOLE)
            with contextlib.nullcontext() if runs else pytest.raises(ClusterFault):
                await creation.create(target, made(), shown.append)
            await source_owners.wait_until_all_owned(60)
            said = "does not own its ConfigMap" if runs else "could not be removed, and may exist"
            assert said in str(shown)
            server.cut, server.for_good = None, False
            _mount(server.objects)
            await unfinished.settle(target, "ada@laptop", shown.append, 60)

    asyncio.run(main())
    _settled(server.objects)


# ------------------------------------------------------------------------- a killed kernel

PROGRAM = textwrap.dedent(
    """
    import asyncio, sys
    from ciao_kernel.backends.kubernetes.cluster.target import Target
    from ciao_kernel.backends.kubernetes.lifecycle import creation, source_owners
    from ciao_kernel.kube.client import Client
    from tests.integration.kube.test_responses import access
    from tests.unit.backends.kubernetes.lifecycle.test_creation import made

    async def main():
        async with Client(access(sys.argv[1]), 60) as api:
            await creation.create(Target(api, "team"), made(), print)
            await source_owners.wait_until_all_owned(60)

    asyncio.run(main())
    """
)


@pytest.mark.second("faults", only="role")
@CUTS
@POINTS
def test_a_killed_kernel_leaves_nothing_that_the_next_one_does_not_settle(
    rules: tuple[dict[str, list[str]], ...], number: int, when: str
) -> None:
    server = Server(ApiObjects(*rules, created=time.time() - LONG_AGO))
    server.cut, server.hangs = (number, when), True

    async def main() -> None:
        async with serving(server.answer) as host:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, host)
            async with asyncio.timeout(60):
                await server.reached.wait()
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
            server.cut = None
            names = server.objects.names()
            if not rules and "tfjobs/mnist" in names:
                # Pods of this job can start at once: it holds no GPU in vain.
                assert names == WHOLE
            _mount(server.objects)
            async with _user(host) as target:
                await unfinished.settle(target, "ada@laptop", print, 60)

    asyncio.run(main())
    _settled(server.objects)


@contextlib.asynccontextmanager
async def _user(host: str) -> AsyncIterator[Target]:
    async with Client(access(host), 1) as api:
        yield Target(api, "team")


def _mount(objects: ApiObjects) -> None:
    """Fill in what real objects have: the job's volumes, and the owner's name."""
    for path, item in objects.objects.items():
        item["metadata"]["annotations"]["ciao-kernel/owner"] = "ada@laptop kernel 7"
        if MAPS not in path:
            item["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "ciao"}
            volumes = [{"configMap": {"name": f"mnist-{number}"}} for number in (1, 2)]
            pods = {"Worker": {"replicas": 1, "template": {"spec": {"volumes": volumes}}}}
            item["spec"] = {"tfReplicaSpecs": pods}


def _settled(objects: ApiObjects) -> None:
    """Either the whole job is there, and owns its sources; or nothing is."""
    assert objects.names() in ([], WHOLE)
    if objects.names():
        assert owned(objects)
