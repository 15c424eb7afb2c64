"""Waits until warm replicas that end have given back their share of a quota, or their GPUs."""

from __future__ import annotations

import asyncio
import time

from ciao_kernel.errors import NoRoom
from ciao_kernel.model import Event, Job, Notice
from ciao_kernel.plugins import Backend, Builder, Emit, Plan

_ROOM, _AGAIN = 30.0, 1.0
"""Seconds in which the room comes back, and between two looks."""
WAITS = "waiting until the old replicas make room …"


async def submit_after_others(
    backend: Backend, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool
) -> Job:
    """Start replicas while others, which this kernel has stopped, may still take the room.

    Args:
        backend: Starts the replicas.
        plan: Their job.
        builder: Packs its source.
        emit: Receives notices, each once, although the job may be submitted several times.
        outlive: Whether the job may outlive this kernel.

    Raises:
        NoRoom: There is no room after half a minute either.
        CiaoError: Any other error of the backend, at once.
    """
    until, said = time.monotonic() + _ROOM, set[str]()

    def once(event: Event) -> None:
        if isinstance(event, Notice):
            if event.text in said:
                return
            said.add(event.text)
        emit(event)

    while True:
        try:
            return await backend.submit(plan, builder, once, outlive=outlive)
        except NoRoom:
            if time.monotonic() > until:
                raise
        once(Notice(WAITS))
        await asyncio.sleep(_AGAIN)
