"""An interrupt is heard soon, whatever a registry does meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.model import SourceFile
from ciao_kernel.oci import registry
from tests.helpers.jobs import wait
from tests.helpers.packages import Index
from tests.integration.builders.test_append import Kernel, Serve
from tests.integration.oci.fake_registry import FakeRegistry, Handler, push_base
from tests.integration.oci.test_contents import layer, push

LARGE = 12 << 20
"""More than the sockets of both sides hold."""
PIECE = 4096
"""Bytes that cross the line each twentieth of a second: 80 kB/s."""


class Line:
    """What a registry does with some requests; it ends with the test.

    Args:
        name: Of the way in which it is slow.
    """

    def __init__(self, name: str) -> None:
        self.name, self.begun, self.over = name, threading.Event(), threading.Event()

    def __call__(self, handler: Handler) -> bool:
        how: Callable[[Handler], bool] = getattr(self, self.name)
        return how(handler)

    def trickles(self, handler: Handler) -> bool:
        """A layer of the base comes by and by."""
        if handler.command != "GET" or "/blobs/" not in handler.path:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(LARGE))
        handler.end_headers()
        with contextlib.suppress(OSError):
            while not self.over.wait(0.05):
                handler.wfile.write(bytes(PIECE))
                self.begun.set()
        return True

    def waits(self, handler: Handler) -> bool:
        """It has all of a layer, and thinks about it."""
        if handler.command != "PUT" or "/blobs/" not in handler.path:
            return False
        self.begun.set()
        self.over.wait()
        handler.reset()
        return True

    def says_no(self, handler: Handler) -> bool:
        """It is busy, and whoever is told so sleeps (`test_a_registry_that_takes_its_time`)."""
        if handler.command != "POST":
            return False
        handler.say(429, b"", "text/plain", **{"Retry-After": "1"})
        self.begun.set()
        return True


class Sipping(Line):
    """The registry takes an upload by and by, as on a slow line."""

    def __init__(self) -> None:
        super().__init__("")

    def read(self, handler: Handler, length: int) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE)
        with contextlib.suppress(OSError):
            while not self.over.wait(0.05) and handler.connection.recv(PIECE):
                self.begun.set()


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    made: list[Line] = []
    yield made
    for line in made:
        line.over.set()


async def interrupted(kernel: Kernel, line: Line, **wishes: Any) -> float:
    """Interrupt a cell once it works, and return the seconds that it took to end.

    What it waits for does not come before: no line here ends by itself, or not in minutes.
    """
    work = asyncio.ensure_future(kernel.build("print(1)", **wishes))
    await wait(line.begun.is_set)
    assert not work.done()
    began = time.monotonic()
    work.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await work
    took = time.monotonic() - began
    line.over.set()
    return took


def pushed(fake: FakeRegistry) -> list[str]:
    return [tag for repository, tag in fake.manifests if repository == "team/cells"]


@pytest.mark.parametrize("name", ["trickles", "waits", "says_no"])
def test_a_registry_that_takes_its_time(
    serve: Serve,
    index: Index,
    tmp_path: Path,
    lines: list[Line],
    name: str,
    figure: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line(name)
    lines.append(line)
    asleep = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: line.over.wait())
    monkeypatch.setattr(registry, "time", asleep)
    near, far = serve(), serve()
    push_base(far, layers=1) if name == "trickles" else push(near, layer())
    kernel = Kernel(near, index, tmp_path)
    if name == "trickles":
        kernel.base = f"{far.host}/bases/python:1"
        kernel.new(plain_registries=(near.host, far.host))
        config = next(key for key in far.blobs if len(far.blobs[key]) < 2000)
        told = line.__call__
        far.how.before = lambda one: config[1] not in one.path and told(one)
    else:
        near.how.before = line

    took = asyncio.run(interrupted(kernel, line))

    figure(f"{took:.2f} s from the interrupt to the end of the cell")
    assert pushed(near) == []


def test_a_slow_line_up(
    serve: Serve,
    index: Index,
    tmp_path: Path,
    lines: list[Line],
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    sipping, near = Sipping(), serve()
    lines.append(sipping)
    push(near, layer())
    kernel = Kernel(near, index, tmp_path)
    data = tmp_path / "data.bin"
    data.write_bytes(random.Random(1).randbytes(LARGE))
    real = Handler.do_GET

    def slowly(handler: Handler) -> None:
        if int(handler.headers["Content-Length"]) > LARGE // 2:
            sipping.read(handler, LARGE)
            handler.reset()
        else:
            real(handler)

    monkeypatch.setattr(Handler, "do_PUT", slowly)
    file = SourceFile("data.bin", origin=data, size=LARGE)

    took = asyncio.run(interrupted(kernel, sipping, files=(file,)))

    figure(f"{took:.2f} s from the interrupt to the end of the cell")
    assert pushed(near) == []
