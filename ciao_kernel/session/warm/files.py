"""Files of ``%output`` of one run in warm pods: they come when the run has ended.

Nothing has to keep a pod for it, as the replicas live on: by ``exec`` the folder of the run is
read, and otherwise the agent has written the files to the log or to a bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ciao_kernel import private_files
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.incoming_files import Receiver
from ciao_kernel.delivery.output.log_lines import LogReader
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.replica_fetch import ReplicaFetch
from ciao_kernel.delivery.transfers import Execute, python_of
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Notice, Replica
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.queries import Streams
from ciao_kernel.plugins import Backend, Emit, WayBack
from ciao_kernel.visible_text import short, visible

_AT_ONCE = 4
"""Replicas whose files are fetched at the same time."""
_LONGEST_FAULT = 200


class RunFiles:
    """Brings the files of one run back.

    Args:
        job: The run.
        words: The paths of ``%output``.
        back: How the files leave the replicas.
        backend: Runs commands in them.
        python: Their interpreter, unless the cell names one.
    """

    def __init__(
        self, job: Job, words: Sequence[str], back: WayBack, backend: Backend, python: str
    ) -> None:
        self._job, self._words, self._back = job, tuple(words), back
        self._backend, self._python = backend, python_of(job, python)
        self._lines: dict[Replica, LogReader] = {}
        self._faults: dict[Replica, str] = {}
        self._fetches: list[ReplicaFetch] = []

    def asked(self, replica: Replica) -> dict[str, Any]:
        """Return what the agent of a replica has to do for the files; empty if nothing."""
        if self._back.way is OutputWay.EXEC:
            return {}
        asked = {"way": str(self._back.way), "words": self._words, "limit": self._back.limit}
        address = self._back.addresses.get(replica)
        return asked | ({"address": address} if address else {})

    def take(self, replica: Replica, marker: dict[str, Any]) -> None:
        """Take a line with files from the log of a replica; it is foreign input."""
        line = marker.get("line")
        if self._back.way is not OutputWay.LOG or not isinstance(line, str):
            return
        try:
            self._lines.setdefault(replica, LogReader()).take(line.encode())
        except BackendError as error:
            self._faults.setdefault(replica, f"{error.message} {error.hint}".rstrip())

    def note_given(self, replica: Replica, marker: dict[str, Any]) -> None:
        """Note that a replica has written its files, or why not."""
        if fault := str(marker.get("fault") or ""):
            self._faults.setdefault(replica, f"{visible(short(fault, _LONGEST_FAULT))}.")

    def has_taken(self, replica: Replica) -> bool:
        """Return whether a replica has written files, or why not, into its log."""
        return replica in self._lines or replica in self._faults

    @property
    def arrived(self) -> bool:
        """Return whether all files are here that were to be brought."""
        return bool(self._fetches) and all(one.arrived for one in self._fetches)

    async def bring(self, replicas: Iterable[Replica], emit: Emit) -> None:
        """Fetch the files; what fails is said, and no error.

        Args:
            replicas: Those that have given files; by ``exec`` all may have some.
            emit: Receives notices, and how far it is.
        """
        folder = Path(self._job.results)
        try:
            private_files.make_folders(folder, Path(self._job.files))
        except (OSError, private_files.Untrusted) as error:
            why = getattr(error, "strerror", None) or str(error)
            emit(Notice(f"the files of this run did not come back: {folder}: {why.rstrip('.')}."))
            return
        returned, room = ReturnedFiles(folder), asyncio.Semaphore(_AT_ONCE)
        by_exec = self._back.way is OutputWay.EXEC
        every = self._job.replicas if by_exec else list(replicas)
        self._fetches = [ReplicaFetch(one, returned, emit, self._back.way) for one in every]
        await asyncio.gather(
            *(one.run(partial(self._made, one.replica), room) for one in self._fetches)
        )

    def give_up(self, why: str) -> None:
        """Say which files do not come any more.

        Args:
            why: The reason, to end a sentence.
        """
        for one in self._fetches:
            if not one.settled:
                one.say_lost(why)

    def _made(self, replica: Replica, receiver: Receiver, **more: Any) -> Fetch:
        by_exec = self._back.way is OutputWay.EXEC
        execute: Execute = partial(self._backend.execute, self._job, replica)
        words: dict[str, Any] = dict(self._back.words)
        return Fetch(
            execute if by_exec else partial(self._written, replica),
            self._python,
            self._words,
            receiver,
            self._back.limit,
            base=self._job.workdir if by_exec else ".",
            again=by_exec,
            **words,
            **more,
        )

    async def _written(self, replica: Replica, command: Sequence[str], streams: Streams) -> int:
        """Pass on what a replica has written; takes the place of a command in it."""
        if fault := self._faults.get(replica):
            raise BackendError(fault)
        if self._back.read is not None:
            await self._back.read(replica, streams.out)
            return 0
        (self._lines.get(replica) or LogReader()).pass_on(streams.out)
        return 0
