"""A command that the container's runtime could not start: it did nothing, and is tried again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from ciao_kernel.errors import Refused
from ciao_kernel.kube import exec as kube_exec
from ciao_kernel.model.queries import Streams
from tests.integration.kube.test_exec_pings import DONE, executed


def failure(words: str) -> bytes:
    status = {
        "status": "Failure",
        "message": "Internal error occurred: error executing command in container: failed to exec "
        'in container: failed to start exec "1": OCI runtime exec failed: exec failed: unable to '
        f"start container process: {words}: unknown",
        "reason": "InternalError",
        "code": 500,
    }
    return b"\x03" + json.dumps(status).encode()


DIED = failure("waiting for init preliminary setup: read init-p: connection reset by peer")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_exec, "_PAUSES", (0.0, 0.0))


def run(
    *answers: tuple[bytes, ...], typed: bool = False, slow: bool = False
) -> tuple[int, bytes, int]:
    """Run a command against a server with these answers, one for each connection.

    Args:
        answers: The messages of each connection.
        typed: Whether the server waits for input first.
        slow: Whether there is input which never comes.

    Returns:
        The exit code, the output, and the number of connections.
    """
    out = bytearray()
    left = list(answers)

    async def handler(request: web.Request) -> web.StreamResponse:
        channel = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await channel.prepare(request)
        if typed:
            await channel.receive()
        for message in left.pop(0):
            await channel.send_bytes(message)
        await channel.close()
        return channel

    async def pieces() -> AsyncIterator[bytes]:
        if slow:
            await asyncio.Event().wait()
        yield b"typed"

    async def main() -> int:
        streams = Streams(out.extend, out.extend, input=pieces() if typed or slow else None)
        return await executed(handler, streams)

    return asyncio.run(main()), bytes(out), len(answers) - len(left)


@pytest.mark.stands_for("oldest")
def test_it_runs_at_the_next_attempt() -> None:
    assert run((DIED,), (DIED,), (b"\x01there", DONE)) == (0, b"there", 3)


def test_a_runtime_that_never_starts_it_is_an_error() -> None:
    with pytest.raises(Refused, match="waiting for init preliminary setup: read init-p"):
        run((DIED,), (DIED,), (DIED,))


@pytest.mark.parametrize(
    "first",
    [(b"\x01half", DIED), (failure('exec: "nope": executable file not found in $PATH'),)],
    ids=["after output", "no such program"],
)
def test_other_ends_are_not_tried_again(first: tuple[bytes, ...]) -> None:
    with pytest.raises(Refused, match="could not be run"):
        run(first, (DONE,))


@pytest.mark.parametrize("kind", ["typed", "slow"])
def test_a_command_with_input_is_not_tried_again(kind: str) -> None:
    """A second one would have what is left of the input."""
    with pytest.raises(Refused, match="could not be run"):
        run((DIED,), (DONE,), **{kind: True})
