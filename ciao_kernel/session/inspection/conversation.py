"""One conversation of a person with the debugger of a process (:mod:`.debugger` of delivery)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from ciao_kernel.background import start_background
from ciao_kernel.delivery.inspection.breakpoints import read_rank
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import Streams
from ciao_kernel.plugins import Console, Debugging
from ciao_kernel.visible_text import visible_lines

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each further try to reach a process: a pod may not be known to run yet."""
_LARGEST = 4 << 20
"""Bytes of a message; foreign input."""
_MOST = 200_000
"""Characters that a process may show between two answers; it sends no more."""
_MESSAGES = 16
"""Messages that are kept; a process sends one, and waits for its answer."""
_GOES_ON = 1.0
"""Seconds after an answer in which the next prompt comes, unless the program runs on."""


class Conversation:
    """The connection with one process.

    Args:
        backend: Has the process.
        job: Its job.
        replica: Its replica.
        pid: Its number; 0 means any of the replica that waits.
        console: The person.
        turn: Held while the console is in use.
        waits: Called if the process must wait for its turn.
        rank: Number of the process in its replica, if it was named; "" means any.
    """

    def __init__(
        self,
        backend: Debugging,
        job: Job,
        replica: Replica,
        pid: int,
        console: Console,
        turn: asyncio.Lock,
        waits: Callable[[], None] = lambda: None,
        rank: str = "",
    ) -> None:
        self._replica, self._console, self._turn = replica, console, turn
        self._waits = waits
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MESSAGES)
        self._rest = b""
        streams = Streams(self._hear, lambda _: None, self._answers())
        self._bridge = start_background(backend.debug(job, replica, pid, streams, rank))
        self.prompted = False
        """Whether a prompt was shown."""
        self.alone = 0.0
        """Seconds after which the program goes on if nobody is there; 0: never."""
        self.is_elsewhere = False
        """Whether the prompt is open elsewhere."""
        self._waits_for_turn = False
        self._room = _MOST

    @property
    def queued(self) -> bool:
        """Whether the next prompt is still to be shown, and not because the program runs."""
        return self._waits_for_turn or not self.prompted

    async def run(self) -> str:
        """Talk until the program goes on.

        Returns:
            How it ended, to end a sentence that begins with the replica; "" if nobody waits.

        Raises:
            PromptClosed: The person has closed the prompt; the process waits for the next one.
            BackendError: The connection failed before a prompt was there.
        """
        try:
            return await self._talk()
        except BackendError:
            if not self.prompted:
                raise
            # A pod that ends takes the connection with it, before the last message.
            return "has ended, or its connection is cut"

    async def _talk(self) -> str:
        message = await self._next(None)
        if message is not None and self._turn.locked():
            self._waits()
        while message is not None:
            self._waits_for_turn = True
            async with self._turn:
                self._waits_for_turn = False
                while message is not None:
                    self._show(message.get("out"))
                    if end := message.get("end"):
                        return visible_lines(str(end))[:200]
                    if "prompt" in message:
                        self.prompted = True
                        prompt = visible_lines(str(message["prompt"]))[:200]
                        self.alone = _seconds(message.get("alone"))
                        rank = read_rank(message.get("rank"))
                        name = f"{self._replica}.{rank}" if rank else str(self._replica)
                        line = await self._ask(f"{name} {prompt}")
                        if line is None:
                            break
                        self._room = _MOST
                        self._typed.put_nowait(json.dumps({"line": f"{line}\n"}).encode() + b"\n")
                    # While the program runs on, it may wait for a replica that waits at a prompt.
                    with contextlib.suppress(TimeoutError):
                        message = await self._next(_GOES_ON)
                        continue
                    break
            message = await self._next(None)
        if not await self._bridge:
            self.is_elsewhere = True
            return "has its prompt open elsewhere"
        return "has ended" if self.prompted else ""

    def _show(self, out: object) -> None:
        """Show what a process has written, up to a limit."""
        if not out or self._room < 0:
            return
        text = str(out)[: self._room]
        self._room -= len(str(out))
        if self._room < 0:
            text += "\n… the rest is not shown.\n"
        self._console.write(visible_lines(text))

    async def close(self) -> None:
        """End the connection; a process that has not been answered waits on."""
        self._bridge.cancel()
        await asyncio.gather(self._bridge, return_exceptions=True)

    async def _ask(self, prompt: str) -> str | None:
        """Return the answer of the person; None if the process has ended meanwhile."""
        asking = start_background(self._console.ask(prompt))
        try:
            await asyncio.wait({asking, self._bridge}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _next(self, within: float | None) -> dict[str, Any] | None:
        """Return the next message, None at the end.

        Raises:
            TimeoutError: None came so soon.
            BackendError: The connection failed.
        """
        await asyncio.sleep(0)  # a process that writes without end leaves time to the others
        if not self._messages.empty():
            return self._messages.get_nowait()
        getting = asyncio.ensure_future(self._messages.get())
        try:
            await asyncio.wait(
                {getting, self._bridge}, timeout=within, return_when=asyncio.FIRST_COMPLETED
            )
            if getting.done():
                return getting.result()
            if self._bridge.done():
                self._bridge.result()
                return None if self._messages.empty() else self._messages.get_nowait()
            raise TimeoutError
        finally:
            getting.cancel()

    def _hear(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:_LARGEST]
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError, asyncio.QueueFull):
                if isinstance(one := json.loads(line), dict):
                    self._messages.put_nowait(one)

    async def _answers(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._typed.get()


class Announced:
    """A console that is told before its first use (:class:`ciao_kernel.plugins.Console`).

    Args:
        console: The console.
        announce: Called before that.
    """

    def __init__(self, console: Console, announce: Callable[[], None]) -> None:
        self._console, self._announce = console, announce
        self._told = False

    def write(self, text: str) -> None:
        """Show a text."""
        self._tell()
        self._console.write(text)

    async def ask(self, prompt: str) -> str:
        """Return the answer to a prompt."""
        self._tell()
        return await self._console.ask(prompt)

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._announce()


def _seconds(said: object) -> float:
    """Return a time that a process has told; 0 if it is none."""
    return said if isinstance(said, float) and 0 < said < 1e9 else 0.0
