"""The status of one job as Python code knows it: asked again until the job is over."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from ciao_kernel.api.client import Client, NoDisplay
from ciao_kernel.errors import BackendError, CiaoError, JobFailed, JobLost, JobStopped, NoSuchJob
from ciao_kernel.model import Job, JobResult, State, Status
from ciao_kernel.model.queries import Where
from ciao_kernel.session import next_tries
from ciao_kernel.session.session import Session

_SOON = 2.0
"""Seconds in which a status must come to be shown: a notebook waits for the text of an object."""


def is_final(status: Status) -> bool:
    """Return whether a status will not change: a cell may end before its replicas do."""
    return status.over and not status.foreseen


class KnownStatus:
    """The last known status of a job, and the way to a newer one.

    Args:
        job: The job.
        status: Its status so far.
        client: Asks for newer ones.
        error: The error that its cell ended with.
    """

    def __init__(
        self, job: Job, status: Status, client: Client, error: CiaoError | None = None
    ) -> None:
        self.status = status
        self._error = error
        self._job, self._client = job, client
        self._newest = job
        """Its newest known try."""
        self._where = Where.of(job)

    @property
    def is_last(self) -> bool:
        """Return whether nobody knows a newer status of the job.

        The name of a run belongs to its replicas, which wait for the next one. The error of a
        cell is the word of a follower that no other try comes.
        """
        if self._error is None and next_tries.may_follow(self._newest, self.status):
            return False
        return is_final(self.status) or bool(self._job.warm_run and self.status.state.over)

    def newest(self) -> Status:
        """Return the status now.

        Raises:
            NoSuchJob: The job is gone, and its end is not known.
            BackendError: There is no answer.
        """
        if not self.is_last:
            try:
                self.status = self._client.run(self._ask)
            except NoSuchJob:
                if not self.status.state.over:
                    raise
                self.status = replace(self.status, settled=True)  # deleted after its end
        return self.status

    def soon(self) -> Status:
        """Return the newest status; the last known one if there is no answer soon."""
        if not self.is_last:
            asked = self._client.start(self._ask)
            try:
                self.status = self._client.result(asked, _SOON)
            except (CiaoError, TimeoutError):
                asked.cancel()
        return self.status

    def note_end(self, error: CiaoError | None = None) -> None:
        """Note the state of a job that has ended, and its error; a deleted one is stopped."""
        self._error = error or self._error
        try:
            self.status = self._client.run(self._ask)
        except NoSuchJob:
            self.status = Status(State.STOPPED, (), since=time.time(), settled=True)

    def confirm(self) -> None:
        """Check that a local job still exists: a later one may have its folder.

        Raises:
            NoSuchJob: It is gone.
        """
        if not self._job.on_cluster:  # there, what was saved here outlasts the job
            self._client.run(self._ask)

    def confirmed(self) -> Status:
        """Return the status now, of a job whose files are still its own (:meth:`confirm`)."""
        status = self.newest()
        self.confirm()
        return status

    def end(self, *, check: bool) -> State:
        """Return the state of a job that is over.

        Args:
            check: Raise the error of a job that did not succeed.
        """
        state = self.status.state
        if not check or state is State.SUCCEEDED:
            return state
        kind = {State.STOPPED: JobStopped, State.LOST: JobLost}.get(state, JobFailed)
        error = self._error or kind(f"{self._job.name} is over: {state}.")
        if self._names_files(error.hint):  # another process may have deleted it since then
            with contextlib.suppress(BackendError):
                try:
                    self.confirm()
                except NoSuchJob:
                    error.hint = "The job was deleted since then, with its files and logs."
        raise self._client.prepared(error)

    def _names_files(self, hint: str) -> bool:
        """Return whether a hint tells where the files or a log of the job are."""
        places = (self._job.place, *(one.log for one in self.status.replicas))
        return any(place and place in hint for place in places)

    async def follow(self, session: Session) -> JobResult:
        """Follow the job to its end, for :meth:`.Client.start`."""
        await self._ask(session)  # a later job may have the name
        shown, folder = NoDisplay(), Path.cwd()
        return await session.attach(self._job.name, shown, where=self._where, folder=folder)

    async def stop(self, session: Session) -> None:
        """Stop the job, for :meth:`.Client.run`; a failed one if its next try may be on its way."""
        backend, job, status = await session.find(self._job.name, self._where)
        self._check(job)
        grace = session.settings.grace(job.grace)
        if is_final(status) and not next_tries.is_due(job, status, grace, time.time()):
            return
        await backend.stop(job, "stopped from Python")

    async def _ask(self, session: Session) -> Status:
        _, job, status = await session.find(self._job.name, self._where)
        self._check(job)
        self._newest = job
        return status

    def _check(self, found: Job) -> None:
        """Check that no other job has taken the name.

        Raises:
            NoSuchJob: One has.
        """
        # A cluster has its own clock, so the time of a submission differs from the object's.
        told = self._job.identity
        same = found.identity == told if told else found.created == self._job.created
        if not same:
            name = self._job.name
            raise NoSuchJob(
                f"{name} was deleted, and a later job has its name.",
                f'ciao_kernel.job("{name}") returns the later one.',
            )
