"""The TensorBoard that shows jobs: one for each kernel, or for a command of a terminal.

TensorBoard shows a folder with one link for each job. A job of this machine writes its event files
into its own folder, so the link leads there. Those of a cluster are copied as they grow
(:mod:`.copying`), and the link leads to the copies, which are in the folder of the job on this
machine: they stay for a later kernel, and are removed with the job.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ciao_kernel import private_files
from ciao_kernel.background import cancel_in_its_loop
from ciao_kernel.config import Settings
from ciao_kernel.delivery import event_files
from ciao_kernel.errors import CiaoError, EnvironmentFault
from ciao_kernel.magics.directives import event_folder
from ciao_kernel.model import Event, Job, Notice, Replica, TensorBoard, naming
from ciao_kernel.plugins import Backend
from ciao_kernel.session.tensorboard.copying import Copying
from ciao_kernel.session.tensorboard.server import Server, check_installed

_log = logging.getLogger(__name__)

_LOOK, _READS = 1.0, 10.0
"""Seconds between two looks at what TensorBoard has read, and in which it reads files for sure.

It looks for them every 5 seconds; it never lists some, for example an empty one.
"""
_EVENTS = "*tfevents*"
PORT = "%PORT%"
"""Stands for the port in an address, as in TENSORBOARD_PROXY_URL."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The way by which a browser reaches a port of this machine."""

    page: str = ""
    """Address for a page of the notebook's server, with :data:`PORT`; "" if none is known."""
    remote: bool = False
    """True if this process is behind a gateway: no browser reaches its ports."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Jobs that TensorBoard shows."""

    names: tuple[str, ...]
    """Names of their runs, or of the folders of these."""
    event: TensorBoard
    """What was told of them."""


class Board:
    """Shows jobs in one TensorBoard, which ends with this process.

    Args:
        settings: Returns the settings now.
        reach: Returns how a browser reaches it; None: it is a command of a terminal, which ends.
        make: Makes the process.
        within: Seconds in which it reads event files; a page is shown after them all the same.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        reach: Callable[[], Reach] | None = None,
        make: Callable[..., Server] = Server,
        within: float = _READS,
    ) -> None:
        self.stays = reach is not None
        """Whether it goes on after a cell or command has ended."""
        self._settings, self._reach, self._make = settings, reach or Reach, make
        self._within = within
        self._server: Server | None = None
        self._copying: dict[tuple[str, Replica], tuple[Copying, asyncio.Task[None]]] = {}
        """By the uid of a job, and a replica."""
        self._shown: dict[str, Path] = {}
        """The folder of each link."""

    def check(self) -> None:
        """Check that jobs can be shown, before one is created.

        Raises:
            EnvironmentFault: TensorBoard is not installed.
        """
        if not self._unreachable():
            check_installed()

    async def start(self) -> None:
        """Start TensorBoard ahead of its first job; an error comes when the job is shown."""
        if not self._unreachable():
            try:
                await self._process().start()
            except CiaoError as error:
                _log.info("TensorBoard did not start: %s", error.message)

    async def show(
        self,
        found: Sequence[tuple[Backend, Job]],
        emit: Callable[[Event], None],
        names: Sequence[str] = (),
        *,
        followed: bool = False,
    ) -> Shown | None:
        """Show jobs, beside those that are shown already; return them, None if they cannot be.

        Args:
            found: The jobs, running or ended, and their backends.
            emit: Receives where they are shown.
            names: Roles and replicas whose event files are copied from a cluster; by default that
                replica of each job which writes them in most programs.
            followed: Whether a cell follows them, and calls :meth:`fill` and :meth:`complete`.
                Who does not follow them calls :meth:`fill` too: it waits for files that are here.

        Raises:
            EnvironmentFault: TensorBoard does not start.
        """
        jobs = [job for _, job in found]
        if self._unreachable():
            emit(Notice(_instead(jobs)))
            return None
        server = self._process()
        address = await server.start()
        for backend, job in found:
            if job.on_cluster:
                chosen = [one for one in job.replicas if one.chosen(names)]
                if not chosen:
                    text = f"{job.name} has no replica {' or '.join(names)}: nothing new is copied."
                    emit(Notice(text))
                elif not names:
                    chosen = [event_files.writer(job)]
                self._copy(backend, job, chosen, emit, followed=followed)
        links = await asyncio.to_thread(self._link, server.place(), jobs)
        port = address.removesuffix("/").rpartition(":")[2]
        page = (self._settings().tensorboard_url or self._reach().page).replace(PORT, port)
        comes = followed or await asyncio.to_thread(self._written, links)
        loads = bool(page) and comes and not await self._has_read(server, links)
        event = TensorBoard(tuple(self._shown), address, page, loads)
        emit(event)
        return Shown(links, event)

    async def fill(
        self, shown: Shown, emit: Callable[[Event], None], over: asyncio.Event | None = None
    ) -> None:
        """Wait until TensorBoard has read event files of jobs, and tell that a page shows them now.

        Files that it does not read in time are waited for no longer: the page is told all the same.
        Nothing is told where no files come, if TensorBoard has ended, or if it was told before.

        Args:
            shown: The result of :meth:`show`.
            emit: Receives where they are shown.
            over: Set when the job is over and its files are here; None: nobody follows it, and only
                files that are here already are waited for.
        """
        server, until = self._server, 0.0
        if server is None or not shown.event.loads:
            return
        while server.runs and not await self._has_read(server, shown.names):
            if over is None or over.is_set():
                until = until or time.monotonic() + self._within
                if not await asyncio.to_thread(self._written, shown.names):
                    return
                if time.monotonic() > until:
                    break
            await asyncio.sleep(_LOOK)
        if server.runs:
            emit(replace(shown.event, jobs=tuple(self._shown) or shown.event.jobs, loads=False))

    async def complete(self, job: Job) -> None:
        """Complete the copies of a job, which is over, and end their tasks."""
        for key in [one for one in self._copying if one[0] == job.uid]:
            copying, task = self._copying.pop(key)
            if cancel_in_its_loop(task):
                await asyncio.wait({task})
            await copying.complete()

    async def close(self) -> None:
        """End TensorBoard, and the copies."""
        for _, task in self._copying.values():
            cancel_in_its_loop(task)
        self._copying.clear()
        self._shown.clear()
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.close)

    def _copy(
        self,
        backend: Backend,
        job: Job,
        replicas: Sequence[Replica],
        emit: Callable[[Event], None],
        *,
        followed: bool,
    ) -> None:
        folder = event_folder.event_folder_in(job.header) or event_folder.DEFAULT
        for replica in replicas:
            known = self._copying.get((job.uid, replica))
            # A task of a closed loop, such as a deleted subshell's, is never done.
            if known is None or known[1].done() or not known[1].get_loop().is_running():
                settings = self._settings()
                copying = Copying(
                    backend, job, replica, folder, settings, followed=followed, emit=emit
                )
                self._copying[job.uid, replica] = (
                    copying,
                    # No work that the end of a command waits for.
                    asyncio.get_running_loop().create_task(copying.run()),
                )

    def _unreachable(self) -> bool:
        return self._reach().remote and not self._settings().tensorboard_url

    def _process(self) -> Server:
        if self._server is None:
            self._server = self._make(self._settings().own_folder)
        return self._server

    async def _has_read(self, server: Server, names: Sequence[str]) -> bool:
        """Return whether TensorBoard has read event files of one of these jobs."""
        return any(await asyncio.gather(*(server.runs_of(name) for name in names)))

    def _written(self, names: Sequence[str]) -> bool:
        """Return whether there are event files of one of these jobs."""
        folders = [self._shown[name] for name in names if name in self._shown]
        return any(any(folder.rglob(_EVENTS)) for folder in folders)

    def _link(self, logdir: Path, jobs: list[Job]) -> tuple[str, ...]:
        """Link the folders of jobs, and return the names of their links."""
        names = []
        for job in jobs:
            target = event_files.here(
                job, event_folder.event_folder_in(job.header) or event_folder.DEFAULT
            )
            try:
                if job.on_cluster:
                    private_files.make_folders(target, Path(job.files))
                names.append(self._name(job, target))
                self._shown[names[-1]] = target
            except (OSError, private_files.Untrusted) as error:
                raise EnvironmentFault(f"TensorBoard cannot show {job.name}: {error}.") from error
        for name, target in self._shown.items():  # all: the folder may be a new one
            link = logdir / name
            try:
                if link.is_symlink() and link.readlink() != target:
                    link.unlink()
                if not link.is_symlink():
                    link.symlink_to(target, target_is_directory=True)
            except OSError as error:
                raise EnvironmentFault(f"TensorBoard cannot show {name}: {error}.") from error
        return tuple(names)

    def _name(self, job: Job, target: Path) -> str:
        """Return the name of a job's link: its own, or with a number if another job has that."""
        names = (job.name, *(f"{job.name}-{number}" for number in range(2, naming.MOST + 1)))
        return next(
            name
            for name in names
            if self._shown.get(name, target) == target or not self._shown[name].exists()
        )


def _instead(jobs: Sequence[Job]) -> str:
    """Return what works behind a gateway; a job of the kernel's own machine is seen there alone."""
    text = (
        "TensorBoard is not started: this kernel is behind a gateway, and no browser reaches its "
        "ports. %plot=loss draws curves in the cell"
    )
    if names := " ".join(job.reference for job in jobs if job.on_cluster):
        text += f", and `ciao tensorboard {names}` in a terminal of your own machine shows the job"
    return f"{text}."
