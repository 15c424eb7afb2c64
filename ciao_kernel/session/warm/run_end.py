"""The end of a run in warm replicas: what still runs is ended, and its files are brought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ciao_kernel.model import Job, Notice, Replica, State
from ciao_kernel.session.warm.expiry import Expiry
from ciao_kernel.session.warm.feeder import Feeder
from ciao_kernel.session.warm.run import Run

PING = 20.0
"""Seconds between two signs of life to replicas that are to stay."""
_PINGS_IN_IDLE = 3
"""Pings in the time of ``%warm``, while the files of a run are fetched."""


class RunEnd:
    """Ends the runs of one job, one after the other.

    Args:
        job: The job.
        feeder: Sends commands to its replicas.
        expiry: Told when they rest.
        linger: Seconds for other workers after the deciding one has succeeded.
        start: Starts a task that neither a cell's end nor a shutdown waits for.
        release: Called when a run is over; returns whether the replicas stay.
    """

    def __init__(
        self,
        job: Job,
        feeder: Feeder,
        expiry: Expiry,
        linger: float,
        start: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        release: Callable[[], bool],
    ) -> None:
        self._job, self._feeder, self._expiry = job, feeder, expiry
        self._linger, self._start, self._release = linger, start, release
        self._bringing: asyncio.Task[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None

    def stop(
        self,
        run: Run,
        replicas: Callable[[], list[Replica]],
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        """End the processes of a run in some replicas; the parameters are those of the feeder's."""
        self._start(self._feeder.stop(run, replicas, sent))

    def end_others(self, run: Run) -> None:
        """End the other replicas of a run that is decided."""
        if run.state is not State.SUCCEEDED:
            self.stop(run, lambda: run.not_ended)
            return
        self.stop(run, lambda: run.only_endless)
        loop = asyncio.get_running_loop()
        self._lingering = loop.call_later(
            self._linger, lambda: self.stop(run, lambda: run.not_ended)
        )

    def end(self, run: Run) -> None:
        """End a run that is over in all replicas, when its files are here."""
        if self._bringing is not None:
            return
        if run.brings:
            self._bringing = self._start(self._bring(run))
            self._bringing.add_done_callback(lambda _: self._finish(run))
        else:
            self._finish(run)

    def lose_files(self, run: Run) -> None:
        """Give up the files that are not here: the replicas are gone."""
        self.cancel_bringing()
        if run.files is not None:
            run.files.give_up("its pod has ended")

    def cancel_bringing(self) -> None:
        """Bring no more files."""
        if self._bringing is not None:
            self._bringing.cancel()

    def cancel_linger(self) -> None:
        """End no replicas later."""
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    async def _bring(self, run: Run) -> None:
        """Bring the files of a run; meanwhile no idle time passes in the replicas."""
        idle = run.plan.spec.warm or 1
        pings = self._start(self._ping_busy(min(PING, idle / _PINGS_IN_IDLE)))
        try:
            await run.bring()
        finally:
            pings.cancel()
        self._start(self._feeder.ping(self._job.replicas, busy=True))  # their idle time begins now

    async def _ping_busy(self, pause: float) -> None:
        while True:
            await self._feeder.ping(self._job.replicas, busy=True)
            await asyncio.sleep(pause)

    def _finish(self, run: Run) -> None:
        self._bringing = None
        if run.over.is_set():
            return  # with its replicas
        if not run.brings:  # else they have heard it from those who fetch its files
            self._start(self._feeder.ping(self._job.replicas))  # its end has been seen
        self._expiry.rest()
        stay = self._release()
        if run.number == 1 and run.state is not State.STOPPED and stay:
            job = self._job
            run.show(
                Notice(
                    f"the replicas of {job.name} stay warm: the next run with this header "
                    f"starts in them at once (`%ciao delete {job.reference}` ends them)"
                )
            )
        run.finish()
