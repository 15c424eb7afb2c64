"""Removes what pods have sent elsewhere, as soon as it is on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ciao_kernel.background import cancel_all
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.model import Event, Notice, Replica

_LAST = 3.0
"""Seconds after the cell's end for removals that have begun."""


class Removals:
    """The removals of one followed job.

    Args:
        files: Notes what is removed.
        emit: Called with what a user has to know.
        wake: Called when a removal has ended.
    """

    def __init__(
        self, files: ReturnedFiles, emit: Callable[[Event], None], wake: Callable[[], None]
    ) -> None:
        self._files, self._emit, self._wake = files, emit, wake
        self._tasks: list[asyncio.Task[None]] = []
        self._said = set[str]()

    @property
    def busy(self) -> bool:
        """Whether something is being removed."""
        return any(not one.done() for one in self._tasks)

    async def remove(self, replica: Replica, remove: Callable[[], Awaitable[str]]) -> None:
        """Remove what a pod has sent, as its files are here; say once if that is not possible.

        The end of the cell does not end the removal: see :meth:`close`.
        """
        await asyncio.shield(self.begin(replica, remove))

    def begin(self, replica: Replica, remove: Callable[[], Awaitable[str]]) -> asyncio.Task[None]:
        """Begin to remove what a pod has sent.

        Args:
            replica: The replica of the pod.
            remove: Removes it, and returns why that is not possible; "" if it is gone.
        """

        async def work() -> None:
            if not (said := await remove()):
                self._files.note_removed(replica)
            elif said not in self._said:
                self._said.add(said)
                self._emit(Notice(said))

        task = asyncio.get_running_loop().create_task(work())
        task.add_done_callback(lambda _: self._wake())
        self._tasks.append(task)
        return task

    async def close(self) -> None:
        """End the removals; those that have begun get some time."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST)
        await cancel_all(self._tasks)
