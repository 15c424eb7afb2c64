"""The exec channel without a server: what its messages mean, and every way it can end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import exec as kube_exec
from ciao_kernel.model.queries import Streams

pytestmark = pytest.mark.stands_for("oldest")

DONE = {"metadata": {}, "status": "Success"}


def failed(code: str) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": code}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


@dataclass(frozen=True)
class Message:
    type: aiohttp.WSMsgType
    data: bytes = b""


class Channel:
    """A server that says what it is told to; a message of None waits until input has ended."""

    def __init__(self, *messages: bytes | None, protocol: str = "v5.channel.k8s.io") -> None:
        self.protocol = protocol
        self.sent: list[bytes] = []
        self.closed = asyncio.Event()
        self._messages = list(messages)

    async def receive(self) -> Message:
        while self._messages:
            message = self._messages.pop(0)
            if message is None:
                while not self.closed.is_set() and b"\xff\x00" not in self.sent:
                    await asyncio.sleep(0)
                continue
            return Message(aiohttp.WSMsgType.BINARY, message)
        return Message(aiohttp.WSMsgType.CLOSED)

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)

    async def close(self) -> None:
        self.closed.set()


def status(value: Any) -> bytes:
    return b"\x03" + json.dumps(value).encode()


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


def run(channel: Channel, **streams: Any) -> tuple[int, bytes, bytes]:
    out, err = bytearray(), bytearray()

    async def main() -> int:
        made = Streams(out.extend, err.extend, **streams)
        run = kube_exec._Run(channel, made)  # type: ignore[arg-type]
        return kube_exec._code(await run.status())

    return asyncio.run(main()), bytes(out), bytes(err)


def test_each_message_goes_to_its_stream() -> None:
    channel = Channel(b"\x01", b"\x02", b"\x01a\x00\xff", b"\x02odd", b"\x01b", status(DONE))
    assert run(channel) == (0, b"a\x00\xffb", b"odd")


@pytest.mark.parametrize("code", ["1", "42", "137"])
def test_the_exit_code_is_the_commands(code: str) -> None:
    assert run(Channel(status(failed(code))))[0] == int(code)


def test_input_is_cut_into_messages_and_its_end_is_told() -> None:
    channel = Channel(None, status(DONE))
    run(channel, input=pieces(b"x" * 70_000, b"y"))
    assert channel.sent[-1] == b"\xff\x00"
    assert [message[:1] for message in channel.sent[:-1]] == [b"\x00"] * 4
    assert b"".join(message[1:] for message in channel.sent[:-1]) == b"x" * 70_000 + b"y"


def test_an_old_server_that_cannot_be_told_the_end_is_an_error() -> None:
    channel = Channel(None, protocol="v4.channel.k8s.io")
    with pytest.raises(ClusterFault, match="cannot signal the end of input"):
        run(channel, input=pieces(b"x"))


def test_the_windows_size_is_sent() -> None:
    async def sizes() -> AsyncIterator[tuple[int, int]]:
        yield 90, 25

    channel = Channel(b"\x01x", status(DONE))

    async def later() -> Message:
        if len(channel._messages) == 1:
            while not channel.sent:
                await asyncio.sleep(0)
        return await Channel.receive(channel)

    channel.receive = later  # type: ignore[method-assign]
    run(channel, sizes=sizes())
    assert channel.sent == [b'\x04{"Width": 90, "Height": 25}']


@pytest.mark.parametrize(
    "messages", [(), (b"\x01half",), (b"\x03not json",), (b"\x01half", b"")], ids=str
)
def test_an_end_without_a_status_is_a_cut(messages: tuple[bytes, ...]) -> None:
    with pytest.raises(ClusterFault, match="ended before the command did"):
        run(Channel(*messages))


@pytest.mark.parametrize(
    "value",
    [
        {"status": "Failure", "message": "no", "code": "x"},
        {"status": "Failure", "details": {"causes": "odd"}},
        {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "odd"}]}},
        {"status": 5},
        ["odd"],
    ],
    ids=str,
)
def test_an_odd_status_is_an_error_of_ours(value: Any) -> None:
    with pytest.raises(Refused, match="could not be run"):
        run(Channel(status(value)))


def test_the_runtimes_own_words_are_shown() -> None:
    said = (
        "Internal error occurred: error executing command in container: OCI runtime exec failed: "
        'exec failed: unable to start container process: exec: "nope": executable file not found '
        "in $PATH: unknown"
    )
    with pytest.raises(Refused) as caught:
        run(Channel(status({"status": "Failure", "message": said, "code": 500})))
    assert caught.value.message == (
        'the command could not be run: exec: "nope": executable file not found in $PATH'
    )
