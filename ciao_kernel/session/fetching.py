"""Fetches files from the pods of a job, when the user asks for it.

A command in the pod sends them: as long as its program runs, and a little longer while
:mod:`ciao_kernel.delivery.output.output_keeper` keeps the files of ``%output``. Later there is what
the pod has sent by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ciao_kernel import private_files
from ciao_kernel.background import cancel_all
from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.replica_fetch import why_kept
from ciao_kernel.delivery.transfers import Execute, python_of
from ciao_kernel.errors import BackendError, CiaoError
from ciao_kernel.magics.directives import outputs, stored_volumes
from ciao_kernel.model import Event, Job, Notice, Progress, Replica
from ciao_kernel.model.outputs import OUTPUT_FOLDER, OutputWay
from ciao_kernel.plugins import Backend, Emit, Sending, SentFiles, Step
from ciao_kernel.session import returned_values
from ciao_kernel.session.warm import found_runs, logged_files
from ciao_kernel.session.warm.logged_files import Logged

_AT_ONCE = 4
"""Replicas whose files are fetched at the same time."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Result of a fetch of files."""

    lines: tuple[str, ...]
    """Sentences about the files."""
    missing: tuple[str, ...] = ()
    """Paths that were named and match no file of any replica."""


async def fetch(
    backend: Backend,
    job: Job,
    replicas: Sequence[Replica],
    words: Sequence[str],
    settings: Settings,
    emit: Emit,
    run: int | None = None,
) -> Fetched:
    """Fetch files from pods into the job's folder on this machine, from some of them at once.

    What is said, and where equal files go, is as if one came after the other.

    Args:
        backend: The job's backend.
        job: The job, on a cluster.
        replicas: The replicas to ask.
        words: Paths in the program's folder; none means those of ``%output``.
        settings: Interpreter and limit.
        emit: Receives notices, and how far it is.
        run: Number of a run of a warm job; None means the newest one.

    Raises:
        UsageError: The job has no such run.
        BackendError: Nothing could be fetched.
    """
    if run is not None:
        found_runs.refuse_unless_warm(job)
    runs = None if job.warm_run else await found_runs.find(backend, job)
    job = job if runs is None else runs.run(run)
    has_folder = runs is None or not job.warm_run or runs.has_folder(job.warm_run)
    folder = Path(job.results)
    private_files.make_folders(folder, Path(job.files))
    values = None if job.warm_run else results.folders(job.header, Path(job.files))
    returned = ReturnedFiles(folder, job.tries, values)
    returned.expect(replicas)
    room, claim, turns = asyncio.Semaphore(_AT_ONCE), asyncio.Lock(), _Turns(emit, len(replicas))

    async def bring(replica: Replica, tell: Emit) -> tuple[CiaoError | None, Sequence[Event]]:
        """Fetch the files of one replica; return why nothing came, and what is to be said."""
        logged: Logged | None = None
        try:
            async with room:
                if job.warm_run:
                    logged = await logged_files.fetch(backend, job, replica, job.warm_run, words)
                if logged is not None and logged.arrived:
                    return None, logged.said
                # Where the replica still lives, it has what was too much for its log.
                if not has_folder:
                    raise _gone(job, replica)
                asked = words or default_words(job)
                asked = (*asked, *(results.file_words(job.header) if values else ()))
                await _fetch_one(backend, job, replica, asked, returned, settings, tell, claim)
        except CiaoError as error:
            return (error, ()) if logged is None else (None, logged.said)
        return None, ()

    async def bring_in_turn(at: int) -> CiaoError | None:
        fault, said = await bring(replicas[at], partial(turns.emit, at))
        turns.end(at, said)
        return fault

    tasks = [asyncio.ensure_future(bring_in_turn(at)) for at in range(len(replicas))]
    try:
        # Not gather(): it cancels too, and a fetch that cleans up must be cancelled once.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        faults = [fault for task in tasks if (fault := task.result()) is not None]
    finally:
        await cancel_all(tasks)
    if len(faults) == len(replicas):
        raise faults[0]
    for fault in faults:
        emit(Notice(fault.message))
    returned = ReturnedFiles(folder, job.tries, values)  # with what came by logs
    return Fetched(tuple(returned_values.of_pods(job, returned, words)), _missing(returned, words))


class _Turns:
    """Emits what is said of some replicas in their order, while they are worked on at once.

    Args:
        emit: Receives the events.
        count: How many replicas there are.
    """

    def __init__(self, emit: Emit, count: int) -> None:
        self._emit, self._first = emit, 0
        self._held: list[list[Event]] = [[] for _ in range(count)]
        self._over = [False] * count

    def emit(self, at: int, event: Event) -> None:
        """Emit an event of a replica when it is its turn; how far it is can be said at any time.

        Args:
            at: The place of the replica in their order.
            event: The event.
        """
        if at == self._first or isinstance(event, Progress):
            self._emit(event)
        else:
            self._held[at].append(event)

    def end(self, at: int, said: Sequence[Event]) -> None:
        """Emit the last events of a replica, and go on with the next ones."""
        for event in said:
            self.emit(at, event)
        self._over[at] = True
        while self._first < len(self._over) and self._over[self._first]:
            self._first += 1
            if self._first < len(self._held):
                for event in self._held[self._first]:
                    self._emit(event)


def found_here(job: Job, words: Sequence[str]) -> Fetched:
    """Return what a job of this machine, or a run of it, has in its folder.

    Args:
        job: The job or run.
        words: Paths in the program's folder; none means those of ``%output``.
    """
    found = replica_files.find(job.workdir, list(words or default_words(job)))
    missing = tuple(one for one in found.missing if one in words)
    return Fetched(tuple(returned_values.of_folder(job, found, words)), missing)


def _missing(returned: ReturnedFiles, words: Sequence[str]) -> tuple[str, ...]:
    """Return the words that match no file of any replica."""
    told = returned.missing()
    # A replica that has ended tells nothing of other words than those of %output.
    others = returned.left_out() or returned.faults()
    paths = [path for _, path, _ in returned.of_replicas()]
    return tuple(
        word
        for word in words
        if word in told
        or not (others or any(replica_files.pattern(word).fullmatch(path) for path in paths))
    )


def default_words(job: Job) -> tuple[str, ...]:
    """Return the paths that are meant if somebody names none."""
    return outputs.paths(job.header) or (OUTPUT_FOLDER,)


def _gone(job: Job, replica: Replica) -> BackendError:
    return BackendError(
        f"{replica} has no files of run {job.warm_run} of {job.name} any more: a pod keeps the "
        "folders of the last two runs."
    )


async def _fetch_one(
    backend: Backend,
    job: Job,
    replica: Replica,
    words: Sequence[str],
    returned: ReturnedFiles,
    settings: Settings,
    emit: Emit,
    claim: asyncio.Lock,
) -> None:
    """Fetch the files of one replica: from its pod, or what it has sent at its end."""
    try:
        sent = await backend.sent(job, replica) if isinstance(backend, Sending) else None
    except BackendError as error:
        if not returned.has_some(replica):
            raise
        emit(Notice(f"{error.message} What it gave earlier is here."))
        return
    way, limit, pod = OutputWay.EXEC, int(settings.fetch_limit), ""
    execute: Execute = partial(backend.execute, job, replica)
    options: dict[str, Any] = {"base": job.workdir} if job.warm_run else {}
    if skip := stored_volumes.not_named(job.header, words) if job.on_cluster else []:
        options["more"] = {"skip": skip}
    if sent is not None:
        way, limit, pod, execute = sent.way, sent.limit, sent.pod, sent.execute
        options = dict(sent.options)
        kept = _kept(job.header)
        if set(words) - set(kept) and not (pod and returned.has_all(replica, pod)):
            emit(Notice(f"{replica} has ended, and gives the files of %output alone."))
        words = kept
    async with contextlib.AsyncExitStack() as at_end:
        if way is OutputWay.CLAIM:  # some claims can be mounted by one pod alone
            await at_end.enter_async_context(claim)
        if sent is not None and sent.close is not None:
            at_end.push_async_callback(sent.close)
        if sent is not None and pod and returned.has_all(replica, pod):
            if returned.leaves_copy(replica, pod):  # whoever fetched them was stopped
                await _remove(replica, sent, returned, emit)
            return
        with Step(emit, f"fetching the files of {replica}", timed=False) as step:
            one = Fetch(
                execute,
                python_of(job, settings.cluster_python),
                words,
                returned.receiver(replica),
                limit,
                on_progress=step.at,
                on_cut=partial(_say_cut, emit, replica),
                **options,
            )
            try:
                await one.run()
            except CiaoError as error:
                if sent is None:
                    raise
                text = f"the files of {replica} cannot be had: {error.message}"
                raise BackendError(text, error.hint) from error
        returned.note(replica, one.listing, way, pod)
        if why := why_kept(replica, way, one.listing):
            emit(Notice(why))
        elif sent is not None:
            await _remove(replica, sent, returned, emit)


async def _remove(replica: Replica, sent: SentFiles, returned: ReturnedFiles, emit: Emit) -> None:
    """Remove the files of a replica, which are here, where it has sent them."""
    if sent.remove is None:
        return
    if said := await sent.remove():
        emit(Notice(said))
    else:
        returned.note_removed(replica)


def _kept(header: str) -> tuple[str, ...]:
    """Return the words whose files a replica sends at its end."""
    return (*results.path_words(header), *results.file_words(header))


def _say_cut(emit: Emit, replica: Replica, why: str) -> None:
    emit(Notice(f"fetching the files of {replica} was cut ({why.rstrip('.')}); it goes on …"))
