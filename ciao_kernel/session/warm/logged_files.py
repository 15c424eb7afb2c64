"""Files of ``%output`` of warm runs in the logs of pods (``by:log``), for those who find the job.

The kernel that starts a run takes them by itself (:mod:`.files`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.replica_files import LOG_MOST
from ciao_kernel.delivery.warm.marks import MarkReader
from ciao_kernel.magics.directives import outputs
from ciao_kernel.model import Event, Job, Notice, Replica
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.plugins import Backend, WayBack
from ciao_kernel.session.warm.files import RunFiles
from ciao_kernel.session.warm.found_runs import as_run

_BACK = WayBack(OutputWay.LOG, LOG_MOST, words={"limit_name": "the log carries at most"})
_MOST_WORDS = 1000


class LoggedFiles:
    """Takes files out of the markers of a job's replicas.

    Args:
        job: The warm job, on any backend.
        backend: Its backend.
        again: Whether files that are here are taken again.
    """

    def __init__(self, job: Job, backend: Backend, *, again: bool = False) -> None:
        self._job, self._backend, self._again = job, backend, again
        self._runs: dict[Replica, tuple[int, RunFiles]] = {}
        self.found = False
        """Whether a log had the files of a run, or the reason why there are none."""
        self.arrived = False
        """Whether all files of a run have come from a log."""

    async def take(self, replica: Replica, marker: Mapping[str, Any]) -> list[Event]:
        """Take a marker; return what is to be said when all files of a replica have come.

        Args:
            replica: The replica that wrote it.
            marker: Its content; it is foreign input.
        """
        what, number = marker.get("ev"), marker.get("id")
        if not self._job.on_cluster or type(number) is not int or number < 1:
            return []  # the job's own folder is that of no run
        if what == "end" and marker.get("gives") is True and (words := _words(marker)):
            job = as_run(self._job, number, self._job.workdir)
            files = RunFiles(job, words, _BACK, self._backend, "python3")
            self._runs[replica] = number, files
            return []
        if replica not in self._runs or self._runs[replica][0] != number:
            return []  # the beginning of its files is not in the log any more
        _, files = self._runs[replica]
        if what == "files":
            files.take(replica, dict(marker))
        elif what == "given":
            del self._runs[replica]
            files.note_given(replica, dict(marker))
            return await self._bring(replica, number, files)
        return []

    async def _bring(self, replica: Replica, number: int, files: RunFiles) -> list[Event]:
        if not files.has_taken(replica):
            return []  # they are in a bucket, whose addresses the kernel of the run alone has
        self.found = True
        folder = Path(as_run(self._job, number, "").results)
        if not self._again and ReturnedFiles(folder).has_some(replica):
            return []
        said: list[Event] = []
        await files.bring([replica], said.append)
        self.arrived = files.arrived
        if files.arrived and not self._again:
            text = f"brought back by the log: the files of run {number} of {replica}, to {folder}"
            said.append(Notice(text))
        return said


@dataclass(frozen=True, slots=True)
class Logged:
    """Result of reading the files of a run from a log."""

    said: list[Event]
    """What is to be said, as the reason why nothing was sent."""
    arrived: bool
    """Whether all files are here."""


async def fetch(
    backend: Backend, job: Job, replica: Replica, number: int, words: Sequence[str]
) -> Logged | None:
    """Bring the files of a run out of the log of a replica.

    Args:
        backend: The job's backend.
        job: The job.
        replica: The replica.
        number: Number of the run.
        words: Paths that are asked for; none means all that the run gave.

    Returns:
        None if the log has no files of that run, or not all that are asked for.

    Raises:
        BackendError: The log does not exist.
    """
    files, said = LoggedFiles(job, backend, again=True), list[Event]()
    for part in MarkReader().read(await backend.log(job, replica)):
        if isinstance(part, dict) and part.get("id") == number:
            if part.get("ev") == "end" and set(words) - set(_words(part)):
                return None
            said += await files.take(replica, part)
    return Logged(said, files.arrived) if files.found else None


def _words(marker: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of ``%output`` of a run: they may be others than those of the job."""
    given = marker.get("words")
    words = given[:_MOST_WORDS] if isinstance(given, list) else []
    if not all(isinstance(word, str) for word in words):
        return ()
    try:
        return tuple(map(outputs.path, words))
    except ValueError:
        return ()
