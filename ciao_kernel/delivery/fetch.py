"""Fetches files of a replica over the input and output of a command there.

A connection that is cut is opened again, and the file goes on where it stopped
(:mod:`.incoming_files`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from ciao_kernel.delivery.incoming_files import IncomingFiles, Listing, Receiver
from ciao_kernel.delivery.replica_files import RELEASE
from ciao_kernel.delivery.transfer_faults import TransferFaults
from ciao_kernel.delivery.transfers import Damaged, Execute, called, failed, is_final
from ciao_kernel.errors import BackendError, ClusterFault, Refused

_log = logging.getLogger(__name__)

_SILENT = 60.0
"""Seconds without a byte after which a replica is given up: a frozen one answers nothing, while its
connection lives."""
_ALIVE, _UNHEARD = 5.0, 30.0
"""Seconds between two signs of life to a replica that keeps its files, and seconds without one
after which it keeps them no longer: whoever asked may be frozen, with the connection open."""
_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_WORDS = 2000
_SAID = 3
"""Maximum number of cut connections that are reported."""


def new_ident() -> str:
    """Return a word that no other fetch has."""
    return os.urandom(8).hex()


class Fetch:
    """Fetches the files that some words name from one replica.

    Args:
        execute: Runs a command in the replica.
        python: Its interpreter.
        words: Paths, relative to ``base``.
        receiver: Takes the files.
        limit: Largest number of bytes in all.
        base: Folder in the replica; by default that in which commands run.
        waits: Keep the connection until :meth:`release`, so that the replica keeps its files.
        on_progress: Called with the bytes that have come, and all.
        on_cut: Called with a reason when a connection has failed and another one is opened.
        on_signed_out: Called with a reason when credentials begin to be refused, in place of that.
        patience: Seconds for which refused credentials are waited for: the user may sign in. With 0
            they are a connection that brings nothing.
        pause: Seconds before the first new try.
        silent: Seconds without a byte after which the replica is given up.
        limit_name: What the limit is, for the error if the files are larger.
        hint: What helps then.
        alive: Seconds between two signs of life to a replica that keeps its files.
        unheard: Seconds without one after which it keeps them no longer.
        ident: Tells its connections from those of others who fetch the same files, as
            :func:`new_ident` does. Who holds the files for another fetch has the same.
        again: Whether a command that has ended too early may send more when it runs again; a log
            or an object is the same each time.
        more: What else the request has (:func:`.replica_files.main`).
    """

    def __init__(
        self,
        execute: Execute,
        python: str,
        words: Sequence[str],
        receiver: Receiver,
        limit: int,
        *,
        base: str = ".",
        waits: bool = False,
        on_progress: Callable[[int, int], object] = lambda *_: None,
        on_cut: Callable[[str], object] = lambda _: None,
        on_signed_out: Callable[[str], object] = lambda _: None,
        patience: float = 0.0,
        pause: float = _PAUSE,
        silent: float = _SILENT,
        limit_name: str = "fetchLimit is",
        hint: str = "`%ciao config fetchLimit=…` raises the limit.",
        again: bool = True,
        more: Mapping[str, Any] | None = None,
        alive: float = _ALIVE,
        unheard: float = _UNHEARD,
        ident: str = "",
    ) -> None:
        self._again, self._more = again, dict(more or {})
        self._execute, self._python, self._words = execute, python, tuple(words)
        self._limit, self._base, self._waits, self._pause = limit, base, waits, pause
        self._on_cut, self._cuts = on_cut, 0
        self._on_signed_out, self._patience = on_signed_out, patience
        self._silent, self._heard = silent, 0.0
        self._alive, self._unheard = alive, unheard
        self._ident = ident or new_ident()
        self._release = asyncio.Event()
        self._files = IncomingFiles(words, receiver, limit, on_progress, limit_name, hint)
        self.arrived = self._files.arrived
        """Set when all files are here."""
        self._words_of_replica = bytearray()

    @property
    def listing(self) -> Listing:
        """The files that the replica has, and those that it could not send."""
        return self._files.listing

    @property
    def whole(self) -> int:
        """Files that are whole."""
        return self._files.whole

    @property
    def current(self) -> str:
        """Path of the file that is coming; "" between two files."""
        return self._files.current

    def release(self) -> None:
        """Let the replica end."""
        self._release.set()

    async def run(self) -> None:
        """Fetch the files; with ``waits`` return after :meth:`release`.

        Raises:
            BackendError: They cannot be fetched. What is whole stays.
        """
        faults, pause = TransferFaults(self._patience), self._pause
        try:
            while True:
                try:
                    await self._once()
                    return
                except (ClusterFault, Refused) as error:
                    if self.arrived.is_set() and (is_final(error) or self._release.is_set()):
                        return  # the replica has ended meanwhile
                    if not faults.add(error, news=self._files.news):
                        raise
                    pause = self._pause if self._files.news else min(pause * 2, _LONGEST_PAUSE)
                    _log.info("a transfer was cut, and goes on: %s", error.message)
                    if not self.arrived.is_set():
                        self._report(faults, error.message)
                    await asyncio.sleep(pause)
        finally:
            self._files.close()

    def _report(self, faults: TransferFaults, why: str) -> None:
        """Report the last fault."""
        if faults.waits:
            if faults.begins_wait:
                self._on_signed_out(why)
            return
        self._cuts += 1
        if self._cuts <= _SAID:
            self._on_cut(why)

    async def hold(self) -> None:
        """Only keep the connection, so that the replica keeps its files; ends by cancellation.

        For a replica that waits for its turn: nothing of its files is read yet.
        """
        pause = self._pause
        while True:
            streams = called(self._python, self._request(only=True), _ignore, _ignore, self._rest())
            try:
                await self._execute(*streams)
            except (ClusterFault, Refused) as error:
                _log.info("a replica that waits for its turn was not reached: %s", error.message)
                if is_final(error):
                    return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _request(self, *, only: bool) -> dict[str, Any]:
        """Return what the replica is asked for: its files, or only to keep them."""
        return {
            "do": "send",
            "base": self._base,
            "words": self._words,
            **self._files.begin_connection(),
            "limit": self._limit,
            "waits": self._waits,
            "waits_only": only,
            "unheard": self._unheard,
            "fetch": self._ident,
            **self._more,
        }

    async def _once(self) -> None:
        del self._words_of_replica[:]
        request = self._request(only=self.arrived.is_set())
        streams = called(self._python, request, self._out, self._err, self._rest())
        code = await self._end_of(self._execute(*streams))
        if code:
            raise Damaged(failed(code, bytes(self._words_of_replica)))
        if not self.arrived.is_set():
            if not self._again:
                raise BackendError("what was sent ended too early.")
            raise ClusterFault("the connection ended before the files were here.")

    async def _end_of(self, work: Awaitable[int]) -> int:
        """Wait for a command's end, and give up if its replica is silent before all is here."""
        command = asyncio.ensure_future(work)
        self._heard = time.monotonic()
        try:
            while not command.done():
                left = self._heard + self._silent - time.monotonic()
                if left <= 0 and not self.arrived.is_set():
                    raise BackendError(f"the replica has sent nothing for {self._silent:g} s.")
                await asyncio.wait({command}, timeout=None if self.arrived.is_set() else left)
            return command.result()
        finally:
            command.cancel()
            await asyncio.gather(command, return_exceptions=True)

    async def _rest(self) -> AsyncIterator[bytes]:
        while self._waits and not self._release.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._alive):
                    await self._release.wait()
            if not self._release.is_set():
                yield b"\n"
        await self._release.wait()
        yield RELEASE

    def _err(self, data: bytes) -> None:
        self._words_of_replica += data
        del self._words_of_replica[:-_WORDS]

    def _out(self, data: bytes) -> None:
        self._heard = time.monotonic()
        self._files.take(data)


def _ignore(_: bytes) -> None:
    """Take what nobody reads."""
