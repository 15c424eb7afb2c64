"""The backend through which a cell uses warm replicas: its jobs are runs in them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial

from ciao_kernel.config import Settings
from ciao_kernel.delivery.warm import sending
from ciao_kernel.errors import BackendError, NoRoom, SpecError
from ciao_kernel.magics.table import Table
from ciao_kernel.model import CleanPolicy, Event, Job, Notice, Replica, Status
from ciao_kernel.model.queries import HERE, WHOLE_LOG, Details, LogOptions, Streams, Where
from ciao_kernel.model.stacks import ReplicaStacks
from ciao_kernel.model.usage import Usage, UsageReport
from ciao_kernel.plugins import (
    Backend,
    Builder,
    Emit,
    Feeding,
    Inspecting,
    Measuring,
    Plan,
    Returning,
    WayBack,
)
from ciao_kernel.session.warm import agent_job, found_runs, framework
from ciao_kernel.session.warm.files import RunFiles
from ciao_kernel.session.warm.key import key_of
from ciao_kernel.session.warm.parked import Parked
from ciao_kernel.session.warm.pool import WarmPool
from ciao_kernel.session.warm.room import submit_after_others
from ciao_kernel.session.warm.run import Run

_FOR_EVER = 10.0**9
"""On this machine replicas end with their kernel's supervisor."""
_BUSY = 30.0
"""Seconds after the grace period of the job in which the processes of an interrupted run must have
ended before the next one."""


class WarmBackend:
    """A backend whose jobs are runs in warm replicas (:class:`ciao_kernel.plugins.Backend`).

    Args:
        inner: The backend that has the replicas.
        pool: The replicas that this kernel keeps; None if nothing is kept here.
        settings: Grace periods and limits.
        table: The directives, to name a difference.
        busy: Seconds after the grace period in which an interrupted run must have ended.
    """

    def __init__(
        self,
        inner: Backend,
        pool: WarmPool | None,
        settings: Settings,
        table: Table,
        busy: float = _BUSY,
    ) -> None:
        self.name = inner.name
        self.outlives_kernel = inner.outlives_kernel
        self._inner, self._pool = inner, pool
        self._settings, self._table, self._busy = settings, table, busy
        self._run: Run | None = None
        self._used: Parked | None = None

    def available(self) -> bool:
        """Return whether the replicas' backend is available."""
        return self._inner.available()

    async def check(self, plan: Plan) -> None:
        """Refuse what warm replicas cannot do, then check as for any other job."""
        if self._pool is None:
            raise SpecError(
                "%warm needs a notebook, whose kernel keeps the replicas for the next cell.",
                "Leave %warm out.",
                directive="warm",
            )
        policy = plan.spec.clean_policy or self._settings.clean_policy
        framework.check(
            plan.spec,
            plan.framework,
            forkable=self._table.names.forkable,
            deletes=policy is CleanPolicy.ALL,
        )
        if not isinstance(self._inner, Feeding):
            raise SpecError(
                f"the backend {self._inner.name} cannot keep replicas.",
                "Leave %warm out.",
                directive="warm",
            )
        if plan.spec.output_paths and not self._brings_files:
            raise SpecError(
                f"files of %output do not come back from warm replicas of {self._inner.name}.",
                "Write them to a %volume, or leave %warm out.",
                directive="output",
            )
        try:
            await self._inner.check(plan)
        except NoRoom as error:
            # The run takes place in the replicas that have the room, or they end before it.
            if not error.holders & self._pool.holders:
                raise
        await self._inner.check_feeding(plan)

    async def preview(self, plan: Plan, builder: Builder) -> str:
        """Describe the job whose replicas would be kept."""
        packed = await asyncio.to_thread(sending.pack, plan.source, plan.spec)
        return await self._inner.preview(self._plan(plan, packed, "0" * 16), builder)

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Use the replicas that wait if the header fits; else end them, and start new ones."""
        assert self._pool is not None
        packed = await asyncio.to_thread(sending.pack, plan.source, plan.spec)
        back = await self._way_back(plan)
        if back is not None and back.notice:
            emit(Notice(back.notice))
        key = await asyncio.to_thread(key_of, plan, self._settings, self.name)
        parked, ends = await self._waiting(), False
        if parked is not None and (different := parked.key.difference(key, self._table)):
            text = f"the warm replicas of {parked.job.name} end, because {different} differs"
            emit(Notice(f"{text}; new ones start"))
            await parked.end()
            await parked.close()
            self._pool.keep(None)
            parked, ends = None, True
        elif parked is None and (ended := self._pool.take_ended()):
            emit(Notice(f"{ended.farewell}; new ones start"))
            ended.let_go()
            ends = ended.holds_room
        if parked is None:
            nonce = secrets.token_hex(8)
            new = self._plan(plan, packed, nonce)
            submit = partial(submit_after_others, self._inner) if ends else self._inner.submit
            job = await submit(new, builder, emit, outlive=outlive)
            parked = Parked(
                job,
                self._inner,
                key,
                nonce,
                grace=self._settings.grace(plan.spec.grace),
                linger=self._settings.linger,
                lease=self._lease,
                clock=self._pool.clock,
            )
            self._pool.keep(parked)
        number = parked.runs + 1
        root = parked.job.workdir if self._keeps_runs else found_runs.ROOT
        place = f"{root}/run-{number}"
        job = replace(
            parked.job,
            warm_run=number,
            created=parked.job.created if number == 1 else time.time(),
            program=f"{place}/{packed.program}",
            root=place,
            place=place if self._keeps_runs else parked.job.place,
            # The agent makes the folder of the run: what ciao itself keeps is beside it.
            folder=parked.job.files if self._keeps_runs else parked.job.folder,
            header=plan.header,
            plot=plan.spec.plot,
            lines=plan.spec.lines,
        )
        decider, endless = framework.deciders(plan.framework, plan.spec, here=self._keeps_runs)
        files = None
        if back is not None:
            python, words = self._settings.cluster_python, plan.spec.output_paths
            files = RunFiles(job, words, back, self._inner, python)
        self._run = Run(job, plan, packed, decider, endless, files)
        self._used = parked
        parked.begin(self._run)
        return job

    async def _waiting(self) -> Parked | None:
        """Return the replicas of this kernel, after the end of an interrupted run in them."""
        assert self._pool is not None
        parked = self._pool.parked
        if parked is None:
            return None
        if parked.loop is not asyncio.get_running_loop():
            if not parked.loop.is_closed():
                raise BackendError(
                    f"the warm replicas of {parked.job.name} belong to a cell that ran in another "
                    "way: in a subshell, or by %run, %rerun or run_cell.",
                    f"`%ciao delete {parked.job.reference}` ends them; or leave %warm out here.",
                )
            self._pool.keep(None)  # its loop has ended, and the lease ends its replicas
            await self._inner.stop(parked.job, "its kernel's loop has ended")
            return None
        if (run := parked.run) is not None:
            try:
                async with asyncio.timeout(parked.grace + self._busy):
                    await run.over.wait()
            except TimeoutError:
                raise BackendError(
                    f"run {run.number} of {parked.job.name} has not ended yet.",
                    f"`%ciao delete {parked.job.reference}` ends its replicas.",
                ) from None
        return self._pool.parked

    def _plan(self, plan: Plan, packed: sending.Packed, nonce: str) -> Plan:
        """Return the plan of the job whose replicas run the agent."""
        run_lease = (self._pool or WarmPool()).run_lease
        leases = agent_job.Leases(self._lease, run_lease)
        return agent_job.plan(plan, packed, nonce, self._settings, leases, here=self._keeps_runs)

    @property
    def _lease(self) -> float:
        """Seconds without a word of the kernel after which idle replicas end."""
        return _FOR_EVER if self._keeps_runs else (self._pool or WarmPool()).lease

    async def _way_back(self, plan: Plan) -> WayBack | None:
        """Return how the files of a run come back; None if there are none, or they are here."""
        if not plan.spec.output_paths or self._keeps_runs:
            return None
        assert isinstance(self._inner, Returning)
        return await self._inner.way_back(plan)

    @property
    def _brings_files(self) -> bool:
        return self._keeps_runs or isinstance(self._inner, Returning)

    @property
    def _keeps_runs(self) -> bool:
        return isinstance(self._inner, Feeding) and self._inner.keeps_runs

    # -------------------------------------------------------------------------- the active run

    def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        """Yield the events of the run that was submitted here."""
        assert self._run is not None
        return self._run.events()

    async def stop(
        self, job: Job, reason: str, *, stop_certain: Callable[[], None] = lambda: None
    ) -> None:
        """End the processes of the run; the replicas stay."""
        used, run = self._used, self._run
        assert used is not None
        assert run is not None
        if used.run is run:
            await used.stop(reason, stop_certain)
        elif not run.sent:  # the replicas cannot start
            await self._inner.stop(used.job, reason, stop_certain=stop_certain)
        stop_certain()  # it may have been over before

    async def delete(self, job: Job) -> None:
        """End the replicas, and remove all that the job left."""
        await self._inner.delete(job)

    async def is_host_terminating(self, job: Job) -> bool:
        """Return the answer of the replicas' backend."""
        return await self._inner.is_host_terminating(job)

    def describe_leftovers(self, job: Job) -> str:
        """Return what is left: the replicas, if they were ready."""
        if self._used is None or self._used.over or (self._run and not self._run.sent):
            return self._inner.describe_leftovers(job)
        if self._used.run is self._run:
            return "its processes have not ended yet"
        return "its replicas stay warm"

    # ------------------------------------------------------------------------ all other requests

    async def jobs(self, where: Where = HERE) -> list[tuple[Job, Status]]:
        """Return all jobs of the replicas' backend."""
        return await self._inner.jobs(where)

    async def find(self, name: str, where: Where = HERE) -> tuple[Job, Status]:
        """Find a job of the replicas' backend."""
        return await self._inner.find(name, where)

    async def details(self, job: Job) -> Details:
        """Return the details of a job."""
        return await self._inner.details(job)

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        """Return the log of a replica, with its markers."""
        return await self._inner.log(job, replica, options)

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        """Run a command beside a replica."""
        return await self._inner.execute(job, replica, command, streams)

    async def stacks(self, job: Job, replicas: Sequence[Replica]) -> list[ReplicaStacks]:
        """Return where the processes of a run stand."""
        if not isinstance(self._inner, Inspecting):
            return [ReplicaStacks(one, fault="its backend cannot look into it") for one in replicas]
        return await self._inner.stacks(job, replicas)

    async def usage(self, job: Job, replicas: Sequence[Replica]) -> UsageReport:
        """Return what the replicas use, with the processes that wait for the next run."""
        if not isinstance(self._inner, Measuring):
            return UsageReport(
                tuple(Usage(one, fault="its backend cannot measure it") for one in replicas)
            )
        return await self._inner.usage(job, replicas)

    async def close(self) -> None:
        """Do nothing: the replicas' backend is closed by its owner."""
