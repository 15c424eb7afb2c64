"""Fetches the files of ``%output`` of one replica, and says what a cell shows about that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ciao_kernel.delivery.fetch import Fetch, new_ident
from ciao_kernel.delivery.incoming_files import Listing
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Notice, Replica
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.plugins import Emit, Step
from ciao_kernel.visible_text import short, visible

_log = logging.getLogger(__name__)

MakeFetch = Callable[..., Fetch]
"""Makes the transfer; it gets the receiver of the files by position, ``waits``, ``on_progress``,
``on_cut`` and ``ident`` by name."""


def why_kept(replica: Replica, way: OutputWay, listing: Listing) -> str:
    """Return why the files of a replica stay where it has sent them; "" if they may go.

    Args:
        replica: The replica.
        way: Where they are.
        listing: What has come of them.
    """
    if way is not OutputWay.CLAIM or not listing.faults:
        return ""
    # There is no other copy of those with a fault.
    return f"some files of {replica} could not be read, so all of them stay on the claim too."


class ReplicaFetch:
    """The fetch from one replica.

    Args:
        replica: The replica.
        files: Takes its files.
        emit: Receives notices, and how far it is.
        way: How the files come.
        pod: Uid of a pod whose files do not change any more; "" if they may.
        holds_back: Emit notices only by :meth:`tell`: a better fetch may follow.
    """

    def __init__(
        self,
        replica: Replica,
        files: ReturnedFiles,
        emit: Emit,
        way: OutputWay = OutputWay.EXEC,
        pod: str = "",
        *,
        holds_back: bool = False,
    ) -> None:
        self.replica = replica
        self.task: asyncio.Task[None] | None = None
        self.arrived = self.failed = False
        self._files, self._emit, self._way, self._pod = files, emit, way, pod
        self._fetch: Fetch | None = None
        self._ident = new_ident()
        """That of all its connections: the replica keeps its files from the wait for a turn on."""
        self._holds_back = holds_back
        self._unsaid: list[Notice] = []

    @property
    def settled(self) -> bool:
        """Return whether its files are here, or do not come."""
        return self.arrived or self.failed

    async def run(
        self,
        make: MakeFetch,
        room: asyncio.Semaphore,
        *,
        waits: bool = False,
        remove: Callable[[], Awaitable[object]] | None = None,
        on_arrival: Callable[[], object] = lambda: None,
    ) -> None:
        """Fetch the files; a failure is said, and no error.

        Args:
            make: Makes the transfer.
            room: Limits how many replicas give their files at the same time.
            waits: Keep the connection until :meth:`release`, so that the replica keeps its files.
            remove: Removes all files where they were sent to, once they are here.
            on_arrival: Called when all files are here.
        """
        name = f"fetching the files of {self.replica}"
        try:
            async with self._turn(make, room, waits=waits):
                with Step(self._emit, name, timed=False) as step:
                    self._fetch = fetch = make(
                        self._files.receiver(self.replica),
                        waits=waits,
                        on_progress=step.at,
                        on_cut=self._say_cut,
                        ident=self._ident,
                    )
                    running = asyncio.ensure_future(fetch.run())
                    arrived = asyncio.ensure_future(fetch.arrived.wait())
                    try:
                        await asyncio.wait({running, arrived}, return_when=asyncio.FIRST_COMPLETED)
                        if not fetch.arrived.is_set():
                            await running
                        self._files.note(self.replica, fetch.listing, self._way, self._pod)
                        if why := why_kept(self.replica, self._way, fetch.listing):
                            self._emit(Notice(why))
                        elif remove is not None:
                            await remove()
                        self.arrived = True
                        self.tell()
                    except BaseException:
                        await _ended(running)
                        raise
                    finally:
                        await _ended(arrived)
            on_arrival()
            try:
                await running
            finally:
                await _ended(running)
        except Exception as error:
            if self.arrived:
                return
            _log.info("fetching from %s failed", self.replica, exc_info=True)
            if self._pod and self._files.has_all(self.replica, self._pod):
                self.arrived = True  # another kernel of this machine was quicker
                self.tell()
                on_arrival()
                return
            why, hint = repr(error), ""
            if isinstance(error, CiaoError):
                why, hint = error.message, error.hint
            self.say_lost(why, hint)

    @contextlib.asynccontextmanager
    async def _turn(
        self, make: MakeFetch, room: asyncio.Semaphore, *, waits: bool
    ) -> AsyncIterator[None]:
        """Wait for the turn of this replica; one that keeps its files is asked to go on with it."""
        holding: asyncio.Future[None] | None = None
        if waits and room.locked():
            held = make(
                self._files.receiver(self.replica),
                waits=True,
                on_progress=lambda *_: None,
                on_cut=lambda _: None,
                ident=self._ident,
            )
            holding = asyncio.ensure_future(held.hold())
        try:
            await room.acquire()
        finally:
            if holding is not None:
                await _ended(holding)
        try:
            yield
        finally:
            room.release()

    def release(self) -> None:
        """Let its pod end."""
        if self._fetch is not None:
            self._fetch.release()

    def supersede(self) -> None:
        """End the fetch, and say nothing of it: another one has all files."""
        self._unsaid.clear()
        if not self.arrived and self.task is not None:
            self.failed = True
            self.task.cancel()

    def tell(self) -> None:
        """Emit the notices that were held back."""
        said, self._unsaid = self._unsaid, []
        for notice in said:
            self._emit(notice)

    def say_lost(self, why: str, hint: str = "") -> None:
        """Say that its files, or the rest of them, do not come back."""
        self.failed = True
        rest = self._rest()
        what = "the other files" if rest else "the files"
        text = f"{what} of {self.replica} did not come back: {why.rstrip('.')}. {rest}{hint}"
        self._say(text.rstrip())

    def _rest(self) -> str:
        """Return a sentence about what is here of a failed fetch; "" if that is nothing."""
        if self._fetch is None or not self._fetch.whole:
            return ""
        whole, files = self._fetch.whole, self._fetch.listing.files
        return f"{whole:,} of {files:,} files {'is' if whole == 1 else 'are'} here. "

    def _say_cut(self, why: str) -> None:
        at = self._fetch.current if self._fetch is not None else ""
        self._say(
            f"fetching the files of {self.replica} was cut ({why.rstrip('.')}); it goes on"
            f"{f' with {visible(short(at))}' if at else ''} …"
        )

    def _say(self, text: str) -> None:
        if self._holds_back:
            self._unsaid.append(Notice(text))
        else:
            self._emit(Notice(text))


async def _ended(task: asyncio.Future[Any]) -> None:
    """End a task, and wait until what it has opened is closed."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
