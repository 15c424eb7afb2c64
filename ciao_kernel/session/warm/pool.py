"""The warm replicas that a kernel keeps.

They are those of one job: idle replicas of another cell would make the next job wait for processors
and GPUs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ciao_kernel import log

if TYPE_CHECKING:
    from ciao_kernel.session.warm.parked import Parked

_log = logging.getLogger(__name__)

LEASE = 300.0
"""Seconds without a word of the kernel after which idle replicas on a cluster end.

A long plain cell blocks the kernel's loop, so it is long; a shorter ``%warm`` ends them earlier."""
RUN_LEASE = 90.0
"""The same at the end of a run, whose cell keeps the loop running."""
_MARGIN = 2.0
"""Seconds before the end of idle replicas in which no run begins in them any more."""


class WarmPool:
    """Keeps the replicas of a kernel.

    Args:
        lease: Seconds without a word of the kernel after which idle replicas on a cluster end.
        run_lease: The same at the end of a run.
        clock: Tells the time, also that of a sleep of this machine.
    """

    def __init__(
        self,
        lease: float = LEASE,
        run_lease: float = RUN_LEASE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.lease, self.run_lease, self.clock = lease, run_lease, clock
        self._parked: Parked | None = None
        self._ended: Parked | None = None

    @property
    def parked(self) -> Parked | None:
        """The replicas that are kept; None if there are none."""
        parked = self._parked
        ends = parked is not None and parked.run is None and self.clock() > parked.expires - _MARGIN
        if parked is not None and (parked.over or ends):
            self._parked, self._ended = None, parked
        return self._parked

    @property
    def holders(self) -> set[str]:
        """Names of the jobs whose replicas are kept, or may not have ended yet."""
        kept = self.parked  # first: it notes replicas that have ended
        return {one.job.name for one in (kept, self._ended) if one}

    def take_ended(self) -> Parked | None:
        """Return the replicas that have ended by themselves since the last cell with %warm."""
        ended, self._ended = self._ended, None
        return ended

    def keep(self, parked: Parked | None) -> None:
        """Keep other replicas from now on."""
        self._parked = parked

    async def close(self) -> None:
        """End idle replicas, because the kernel ends; a run that is active goes on without it."""
        for parked in (self.parked, self._ended):
            if parked is not None and parked.loop is asyncio.get_running_loop():
                with log.ignored(_log, "ending the warm replicas"):
                    await parked.end()
                await parked.close()
