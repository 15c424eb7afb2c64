"""One job as a Python object: ``_job`` in a notebook, and the result of ``ciao_kernel.job(…)``."""

from __future__ import annotations

import time
from concurrent import futures
from functools import partial
from pathlib import Path

from ciao_kernel.api import job_logs
from ciao_kernel.api.client import Client
from ciao_kernel.api.job_metrics import JobMetrics
from ciao_kernel.api.known_status import KnownStatus
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.results import Results
from ciao_kernel.display.plotting import read_curves, read_progress, tells_progress
from ciao_kernel.errors import BackendError, CiaoError, JobError, NoSuchJob
from ciao_kernel.model import Job, JobResult, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.progress import Done, best_known
from ciao_kernel.model.queries import LogOptions
from ciao_kernel.model.times import age
from ciao_kernel.visible_text import counted

_NEWEST = 2000
"""Lines of each log that are read for the progress."""


class JobHandle:
    """A job as an object: ``_job`` is the last one of this notebook.

    It is what a cell with ``%framework`` has run, or what ``ciao_kernel.job("NAME")`` finds::

        state                 Pending, Running, Succeeded, Failed, Stopped or Lost, asked now
        wait(timeout=None)    wait until it is over; raises the error that its cell would raise
        stop()                stop all replicas; its folder and its logs stay
        logs("worker-0")      output of one replica, or of all; tail=20: the last lines
        progress              how far its training is: share, left, step, epoch
        metrics               numbers of its logs, by name and replica; .last, .to_frame()
        result                values of the program that %output names
        replicas              state, exit code, restarts and log file of each replica
        folder, place         its files on this machine; where it runs
        duration, created     seconds that it took; the time of its submission
        name, header          for %ciao attach NAME; the directives of its cell

    Attributes that may change ask this machine or the cluster until the job is over. They raise a
    :class:`~ciao_kernel.errors.CiaoError` if there is no answer or no such job.

    Examples:
        The last loss of a replica, and the curve as a table::

            _job.metrics["loss"]["worker-0"].last
            _job.metrics.to_frame()

        A job that runs in the background (``%detach``), stopped if it takes too long::

            try:
                _job.wait(timeout=600)
            except TimeoutError:
                print(_job.logs("worker-0", tail=20))
                _job.stop()
    """

    # Made by the kernel and by the package `api`: a job, its last known status, and the client
    # that asks for newer ones; and the error of its cell.
    def __init__(
        self, job: Job, status: Status, client: Client, error: JobError | None = None
    ) -> None:
        self._job, self._client = job, client
        self._known = KnownStatus(job, status, client, error)
        self._following: futures.Future[JobResult] | None = None
        self._waited = False
        """True if a wait has told its end, with all lines and files."""
        self._metrics: JobMetrics | None = None
        """The metrics of an ended job, whose logs do not change."""

    # -------------------------------------------------------------------- what never changes

    @property
    def name(self) -> str:
        """Name of the job, for ``%ciao attach NAME``."""
        return self._job.name

    @property
    def framework(self) -> str:
        """Name of its framework."""
        return self._job.framework

    @property
    def backend(self) -> str:
        """Name of the backend that runs it: ``local`` or ``kubernetes``."""
        return self._job.backend

    @property
    def header(self) -> str:
        """The directives of its cell, one per line, without secret values."""
        return self._job.header

    @property
    def dryrun(self) -> str:
        """Always "": a dry run makes no job."""
        return ""

    @property
    def place(self) -> str:
        """The place where it runs: the folder of its files, or a namespace."""
        return self._job.place

    @property
    def folder(self) -> Path:
        """Folder on this machine: of a local job, or the logs and files of a cluster job.

        A run in warm replicas has its own.
        """
        return Path(self._job.results)

    @property
    def run(self) -> int:
        """Number of its run in replicas that %warm keeps; 0 for any other job."""
        return self._job.warm_run

    @property
    def created(self) -> float:
        """Time of its submission, in seconds since the epoch."""
        return self._job.created

    # ------------------------------------------------------------------------ what may change

    @property
    def state(self) -> State:
        """State now: Pending, Running, Succeeded, Failed, Stopped or Lost."""
        return self._known.newest().state

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Its replicas now: state, exit code, restarts, node, and the path of each log."""
        return self._known.newest().replicas

    @property
    def duration(self) -> float:
        """Seconds from its submission to its end, or until now."""
        return _duration(self._job, self._known.newest())

    @property
    def metrics(self) -> JobMetrics:
        """Numbers that its replicas have logged: ``_job.metrics["loss"]["worker-0"].last``.

        They are read from the logs in the way of ``%plot``, whether or not the cell has one. A log
        that cannot be read is left out, with a warning.

        Raises:
            BackendError: No log can be read.
        """
        if self._metrics is not None:
            return self._metrics
        self._known.confirmed()
        over = self._known.is_last
        curves = job_logs.converted(self._client, self._job, partial(read_curves, over=over))
        metrics = JobMetrics(curves)
        if over and len(curves) == len(self._job.replicas):
            self._metrics = metrics
        return metrics

    @property
    def progress(self) -> Done | None:
        """Progress of its training, by the newest lines of its logs: share, time left, step, epoch.

        None if the lines do not tell: neither a bar nor ``Epoch 2/5`` nor ``step 20/100``; nor the
        status of a TrainJob, to which a program can report by itself.
        """
        status = self._known.confirmed()
        training = [one for one in self._job.replicas if tells_progress(one)]
        options = LogOptions(tail=_NEWEST)
        logs = job_logs.read(self._client, self._job, training, options)
        return best_known(read_progress(logs, _duration(self._job, status)), status.told)

    @property
    def result(self) -> Results:
        """Values of the program at its end, which ``%output`` names: ``_job.result["metrics"]``.

        Following the job brings them to this machine: its cell, ``attach`` or :meth:`wait`.
        """
        return results.of_job(self._job, self._known.confirmed())[1]

    def logs(self, replica: str | Replica = "", *, tail: int | None = None) -> str:
        """Return the output of one replica, or of all with the prefix ``[worker-0]``.

        A log that cannot be read is left out, with a warning.

        Args:
            replica: A replica such as ``worker-0`` or a role such as ``worker``; "" means all.
            tail: Number of lines from the end of each log; None means all lines.

        Raises:
            ValueError: The job has no such replica, or ``tail`` is negative.
            BackendError: No log can be read.
        """
        if tail is not None and tail < 0:
            raise ValueError(f"tail cannot be {tail}: it is a number of lines from 0 up.")
        named = str(replica)
        chosen = [one for one in self._job.replicas if one.chosen([named] if named else [])]
        if not chosen:
            known = ", ".join(map(str, self._job.replicas))
            raise ValueError(f"{self.name} has no replica {named}. There are: {known}.")
        self._known.confirm()
        logs = job_logs.read(self._client, self._job, chosen, LogOptions(tail=tail))
        texts = [data.decode("utf-8", "replace") for data in logs]
        if named == str(chosen[0]):
            return texts[0]
        return "".join(
            f"[{one}] {line}\n"
            for one, text in zip(chosen, texts, strict=True)
            for line in text.removesuffix("\n").split("\n")
            if text
        )

    # ---------------------------------------------------------------------------- what it does

    def wait(self, timeout: float | None = None, *, check: bool = True) -> State:
        """Wait until the job is over; return its final state.

        An interrupt or a timeout ends only the wait; the job keeps running.

        Args:
            timeout: Maximum number of seconds; None waits for ever. The last lines and files of a
                job that is over are waited for in any case.
            check: Raise the error of a failed job, as its own cell would.

        Raises:
            JobFailed: The job has failed, with the traceback of the replica (if ``check``).
            JobStopped: Somebody has stopped or deleted it (if ``check``).
            TimeoutError: It still runs.
            BackendError: Its state cannot be read.
        """
        # The name of a run is that of replicas, which may wait for long.
        if (self._job.warm_run or self._waited) and self._known.is_last:
            return self._known.end(check=check)
        if self._following is None:
            self._following = self._client.start(self._known.follow)
        following = self._following
        # The future stays when a wait ends: the next wait does not read all lines again.
        if not futures.wait([following], timeout).done:
            self._known.soon()
            if not self._known.is_last:
                raise TimeoutError(f"{self.name} still runs after {timeout:g} s.")
            if self._job.warm_run:
                return self._known.end(check=check)
            futures.wait([following])
        self._following = None
        try:
            self._known.status = self._client.result(following).status
            self._waited = True
        except NoSuchJob:
            if not self._known.status.state.over:
                raise
            return self._known.end(check=check)  # deleted after its end
        except BackendError:
            raise
        except CiaoError as error:
            self._known.note_end(error)
            self._waited = True
            if check:
                raise
        return self._known.status.state

    def stop(self) -> State:
        """Stop all replicas; return when they have ended. Its folder and logs stay."""
        self._known.newest()
        if not self._known.is_last:
            self._client.run(self._known.stop)
            self._known.note_end()
        return self._known.status.state

    # ---------------------------------------------------------------------------- how it looks

    def __repr__(self) -> str:
        replicas = counted(len(self._job.replicas), "replica")
        status = self._known.soon()
        taken = age(_duration(self._job, status))
        return f"<job {self.name}: {status.state}, {self.framework}, {replicas}, {taken}>"

    def _repr_html_(self) -> str:
        from ciao_kernel.display.html_table import job_html

        return job_html(self._job, self._known.soon())


def _duration(job: Job, status: Status) -> float:
    end = status.since if status.state.over and status.since else time.time()
    return max(0.0, end - job.created)
