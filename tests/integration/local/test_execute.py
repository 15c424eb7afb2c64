"""Commands beside a replica whose own ends break: what is read for them, what they write."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ciao_kernel.errors import BackendError, EnvironmentFault
from ciao_kernel.model.queries import Streams
from tests.helpers.jobs import Place, replica


def run(jobs: Place, *command: str, wait: float = 60, **streams: Any) -> tuple[int, bytes]:
    """Run a command beside the replica of a job that is over already; one that hangs fails."""
    out = bytearray()

    async def main() -> int:
        session = jobs.session()
        ended = await jobs.ended("%framework=tensorflow\n%name=a\nprint()\n", session)
        assert ended.error is None
        backend, job, _ = await session.find("a")
        made = Streams(**{"out": out.extend, "err": out.extend, **streams})
        async with asyncio.timeout(wait):
            code: int = await backend.execute(job, replica("worker-0"), command, made)
            return code

    return asyncio.run(main()), bytes(out)


async def broken(error: Exception) -> AsyncIterator[bytes]:
    """An input that cannot be read any further."""
    yield b"half"
    raise error


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"y\n" * 1000


async def window() -> AsyncIterator[tuple[int, int]]:
    yield 80, 25
    await asyncio.Event().wait()


@pytest.mark.parametrize("terminal", [False, True], ids=["pipes", "terminal"])
@pytest.mark.parametrize(
    "error", [EnvironmentFault("no more"), ConnectionResetError("no more")], ids=["ours", "odd"]
)
def test_an_input_that_breaks_ends_the_command_and_is_told(
    jobs: Place, error: Exception, terminal: bool
) -> None:
    with pytest.raises(type(error), match="no more"):
        run(jobs, "cat", input=broken(error), sizes=window() if terminal else None)


def test_a_command_may_end_before_its_input(jobs: Place) -> None:
    assert run(jobs, "head", "-n1", input=endless()) == (0, b"y\n")
    assert run(jobs, "sh", "-c", "exec <&-; sleep .5; exit 3", input=endless()) == (3, b"")


@pytest.mark.parametrize("terminal", [False, True], ids=["pipes", "terminal"])
@pytest.mark.parametrize("error", [BrokenPipeError("gone"), OSError(28, "full")], ids=str)
def test_an_output_that_breaks_ends_the_command_and_is_not_its_fault(
    jobs: Place, error: OSError, terminal: bool
) -> None:
    def write(data: bytes) -> None:
        raise error

    with pytest.raises(type(error), match=str(error.args[-1])) as caught:
        run(jobs, "yes", out=write, sizes=window() if terminal else None)
    assert caught.value is error


@pytest.mark.parametrize("terminal", [False, True], ids=["pipes", "terminal"])
def test_a_command_that_cannot_be_started_is_to_blame(jobs: Place, terminal: bool) -> None:
    with pytest.raises(BackendError, match="nope cannot be run: No such file"):
        run(jobs, "nope", sizes=window() if terminal else None)


def test_a_child_that_holds_the_output_open_does_not_keep_the_command(jobs: Place) -> None:
    """It lives as long as its job, like every process beside a replica."""
    code, out = run(jobs, "sh", "-c", "sleep 0.5; sleep 600 & echo $!; exit 3", wait=60)
    os.kill(int(out), signal.SIGKILL)
    assert code == 3
