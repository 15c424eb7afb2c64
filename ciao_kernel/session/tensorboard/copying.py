"""Keeps copies of the event files of a job on a cluster in step, until the job is over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from ciao_kernel import log
from ciao_kernel.config import Settings
from ciao_kernel.delivery.event_copies import EventCopies, NotCopied, TooLarge, take_returned
from ciao_kernel.delivery.transfers import python_of
from ciao_kernel.errors import BackendError, NoSuchJob, Refused
from ciao_kernel.model import Event, Job, Notice, Replica, State
from ciao_kernel.model.queries import Where
from ciao_kernel.plugins import Backend

_log = logging.getLogger(__name__)

_PAUSE, _LONGEST_PAUSE = 1.0, 10.0
"""Seconds between two tries to enter a pod that has not begun, or has ended."""
_BETWEEN_TRIES = 30
"""Looks for the next try of a job that has failed (``%retries``)."""


class Copying:
    """Copies the event files of one replica.

    Args:
        backend: The job's backend.
        job: The job, on a cluster.
        replica: The replica.
        folder: Its folder with event files, beside the program.
        settings: Interpreter and limit.
        followed: Whether a cell follows the job and calls :meth:`complete`: with ``%retries`` its
            end is not that of this job.
        emit: Receives once why nothing can be copied.
    """

    def __init__(
        self,
        backend: Backend,
        job: Job,
        replica: Replica,
        folder: str,
        settings: Settings,
        *,
        followed: bool,
        emit: Callable[[Event], object] = lambda _: None,
    ) -> None:
        self._followed, self._emit, self._said = followed, emit, False
        self._failed = 0
        """Looks since a try has failed after which another one may come."""
        self._backend, self._job, self._replica, self._folder = backend, job, replica, folder
        self._python = python_of(job, settings.cluster_python)
        self._copies = EventCopies(job, replica, folder, int(settings.fetch_limit))

    async def run(self) -> None:
        """Copy until the job is over; what came back by its end completes the copies."""
        with log.ignored(_log, "copying event files"):
            await self._run()

    async def _run(self) -> None:
        pause = _PAUSE
        while True:
            try:
                execute = partial(self._backend.execute, self._job, self._replica)
                if await self._copies.run(execute, self._python) and not self._followed:
                    break  # the program is over, and its pod kept the files for this
            except BackendError as error:
                _log.debug("copying from %s of %s: %s", self._replica, self._job.name, error)
                self._say_once(error)
                if isinstance(error, TooLarge):
                    break
            if not self._followed and await self._is_over():
                break
            pause = _PAUSE if self._copies.whole else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)
        await self.complete()

    def _say_once(self, error: BackendError) -> None:
        """Say why nothing is copied, if waiting for the replica does not help."""
        forbidden = isinstance(error, Refused) and error.code == 403
        if self._said or not (forbidden or isinstance(error, NotCopied)):
            return
        self._said = True
        why = f"{error.message.rstrip('.')}. {error.hint}".rstrip()
        self._emit(
            Notice(f"event files of {self._job.name} ({self._replica}) are not copied: {why}")
        )

    async def complete(self) -> None:
        """Take what came back at the job's end."""
        with contextlib.suppress(OSError, ValueError):
            await asyncio.to_thread(take_returned, self._job, self._folder)

    def _is_last(self) -> bool:
        """Return whether no next try follows one that has failed, or whose job is gone."""
        self._failed += bool(self._failed)
        return not 0 < self._failed <= _BETWEEN_TRIES

    async def _is_over(self) -> bool:
        where = Where(namespace=self._job.place, context=self._job.context)
        try:
            job, status = await self._backend.find(self._job.name, where)
        except NoSuchJob:
            return self._is_last()
        except BackendError:
            return False
        if job.uid != self._job.uid:
            if job.identity != self._job.identity:
                return True
            self._job, self._failed = job, 0  # its next try
            return False
        if status.state is State.FAILED and job.tries <= job.retries:
            self._failed = self._failed or 1
            return self._is_last()
        mine = next((one for one in status.replicas if one.replica == self._replica), None)
        return status.state.over and (mine is None or mine.state.over)
