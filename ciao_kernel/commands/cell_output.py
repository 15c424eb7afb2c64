"""Output of a command in a cell, as fast as Jupyter passes it on, up to a limit."""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Callable

from ciao_kernel.config import Settings
from ciao_kernel.display.lines import plain, wire_size
from ciao_kernel.display.message_rate import MessageRate

_BATCH = 0.1
"""Seconds between two writes."""


class CellOutput:
    """Writes whole characters, in batches; what goes beyond the rate waits.

    Args:
        write: Appends to the cell.
        rate: Bytes a second, as in messages.
        limit: Maximum number of bytes: a notebook with 100 MB of text does not open any more.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        rate: float,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._room, self._rate = write, limit, MessageRate(rate, clock)
        self._left_out = 0
        self._text = ""
        """What has come and may change: the end of a progress bar counts."""
        self._ready = ""
        """What is to be written."""
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, write: Callable[[str], object], settings: Settings) -> CellOutput:
        """Return the output with the limits of the settings."""
        return cls(write, settings.output_rate, settings.output_limit)

    @property
    def full(self) -> bool:
        """Return whether the limit is reached: more text is only counted."""
        return self._room <= 0

    def stream(self) -> Callable[[bytes], None]:
        """Return an output stream; it accepts characters that are split between two pieces."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def add(data: bytes) -> None:
            kept = data[: max(0, int(self._room))]
            self._room -= len(data)
            self._left_out += len(data) - len(kept)
            self._text += decoder.decode(kept)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_BATCH, self.flush)

        return add

    def flush(self, *, last: bool = False) -> None:
        """Show what the rate allows; with ``last``, no more output follows."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        text, self._text = self._text, ""
        whole, feed, rest = text.rpartition("\n")
        if not last and ("\r" in rest or "\x1b" in rest):
            # A progress bar or a colour: the final text is known only at the end of the line.
            text, self._text = whole + feed, rest
        self._ready += "\n".join(map(plain, text.split("\n")))
        if shown := self._within_rate():
            self._write(shown)
        if self._ready:
            self._timer = asyncio.get_running_loop().call_later(_BATCH, self.flush)

    def _within_rate(self) -> str:
        """Take what may be written now."""
        room = int(self._rate.room())
        shown = self._ready[: room + 1]
        while (size := wire_size(shown)) > room:
            shown = shown[: max(0, min(len(shown) - 1, len(shown) * room // size))]
        if len(shown) < len(self._ready):
            # Lines stay whole, unless one alone is longer than all that may be written at once.
            cut = shown.rfind("\n") + 1
            shown = shown[:cut] if cut or room < int(self._rate.burst) else shown
        self._ready = self._ready[len(shown) :]
        self._rate.spend(wire_size(shown))
        return shown

    async def drain(self) -> None:
        """Wait until all text so far, but for an unfinished line, is written."""
        self.flush()
        while self._timer is not None:
            await asyncio.sleep(_BATCH)

    def leave_out(self, size: int) -> None:
        """Count bytes that are not shown."""
        self._left_out += size

    async def end(self) -> None:
        """Show the rest, and report the number of bytes that are not shown."""
        try:
            self.flush(last=True)
            while self._timer is not None:
                await asyncio.sleep(_BATCH)
                self.flush(last=True)
        finally:
            self.stop()

    def stop(self) -> None:
        """Show what the rate allows now, and report the number of bytes that are not shown."""
        self.flush(last=True)
        if self._timer is not None:
            self._timer.cancel()
        self._left_out += len(self._ready.encode())
        self._timer, self._ready = None, ""
        if self._left_out:
            self._write(f"\n… {self._left_out:,} more bytes are not shown.\n")
            self._left_out = 0
