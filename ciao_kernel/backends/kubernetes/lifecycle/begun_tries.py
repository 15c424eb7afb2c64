"""Keeps how far this process came with a job's next try, so that a fault does not end it.

The API server may go away between any two requests of :mod:`.resubmission`. A repetition has to
know what the attempts before have done: they may have deleted the failed try, and a next one that
they could neither finish nor remove may be there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest

if TYPE_CHECKING:
    from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects

_LOOK = 0.05
"""Seconds between two looks for the end of a removal in another event loop."""


@dataclass
class BegunTry:
    """State of one next try: all that the attempts to make it have done."""

    deleted: bool = False
    """The API server has accepted the deletion of the failed try, or its answer was lost."""
    unrecorded: tuple[Objects, Objects] | None = None
    """The objects of the next try and of the deleted one, if no record has them."""
    record: str = ""
    """The uid of the record that one of them wrote."""
    runs: set[str] = field(default_factory=set)
    """Submissions that failed, and are removed."""
    removals: set[asyncio.Task[None]] = field(default_factory=set)
    """Their removals, which go on in the background."""

    @property
    def recorded(self) -> bool:
        """True if the failed try is deleted, and a record has the objects of the next one."""
        return self.deleted and self.unrecorded is None

    def note_deletion(self, made: Objects, item: Manifest, *, recorded: bool) -> None:
        """Note that the failed try is deleted, or may be.

        Args:
            made: The objects of the next try.
            item: The object of the deleted one.
            recorded: Whether a record has them.
        """
        self.deleted = True
        self.unrecorded = None if recorded else (made, replace(made, job=item))

    @contextmanager
    def submitting(self, run: str) -> Iterator[None]:
        """Note a submission that fails in this context."""
        try:
            yield
        except BaseException:  # not before: another follower here would remove a live try
            self.runs.add(run)
            raise

    async def find(
        self, client: Client, deletions: Deletions, job: Job, path: str
    ) -> Manifest | None:
        """Return the object that has the job's name, when nothing of failed submissions is left.

        Args:
            client: The API server.
            deletions: Deletes what a failed submission has left.
            job: The try that failed.
            path: Path of its object.

        Raises:
            Refused, ClusterFault: From the client and the deletion.
        """
        await self._removed()  # one that is still under way would delete its try under our eyes
        item = await client.find(path)
        if item is None or (run := job_metadata.run(item)) not in self.runs:
            return item
        left = replace(job, uid=str(item["metadata"]["uid"]), run=run)
        await deletions.remove(client, left, path, lambda: None)
        return None

    async def _removed(self) -> None:
        """Wait for the removals, also for those of followers in other event loops."""
        here = asyncio.get_running_loop()
        for task in self.removals.copy():
            loop = task.get_loop()
            if loop is here:
                await asyncio.wait({task})
            while not task.done() and not loop.is_closed():  # a task is awaited only in its loop
                await asyncio.sleep(_LOOK)
            self.removals.discard(task)


class BegunTries:
    """The next tries that this process makes now, by the try that failed."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], BegunTry] = {}
        self._makers = Counter[tuple[str, int]]()

    @contextmanager
    def making(self, job: Job) -> Iterator[None]:
        """Keep what is known of a failed try's next one until nobody here makes it any more.

        Its objects have the whole cell. Another follower of this process may still need them.

        Args:
            job: The failed try.
        """
        key = job.identity, job.tries
        self._makers[key] += 1
        try:
            yield
        finally:
            self._makers[key] -= 1
            if not self._makers[key]:
                del self._makers[key]
                self.forget(job)

    def of(self, job: Job) -> BegunTry:
        """Return how far the next try of a failed one is."""
        return self._begun.setdefault((job.identity, job.tries), BegunTry())

    def forget(self, job: Job) -> None:
        """Forget a next try that was made, or that somebody has ended."""
        self._begun.pop((job.identity, job.tries), None)
