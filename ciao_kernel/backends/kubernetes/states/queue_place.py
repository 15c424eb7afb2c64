"""The place of a job in its queue, where Kueue tells it.

Kueue answers for its queues through the API server, unless an administrator has left that out. Its
answer lists the jobs that wait in a LocalQueue, in their order; places count from 0.

Sources: ``apis/visibility/v1beta2/types.go``, ``pkg/visibility/storage`` of Kueue 0.15.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.responses import object_of
from ciao_kernel.model import Job

GROUP = "visibility.kueue.x-k8s.io"
READ = Right("get", "localqueues", GROUP, "pendingworkloads")
"""Optional right: with it the place of a waiting job is known."""
_ASK_EVERY, _ASK_FOR = 10.0, 2.0
_VERSIONS = ("v1beta2", "v1beta1")
"""Versions of the API whose fields are the same; the newer one first."""
_DENIALS = 3
"""Refusals after which requests end: a single refusal may come from a server that just started."""


class QueuePlace:
    """Finds the place of a job that waits in a queue; without an answer it is silent.

    Args:
        client: The API server.
        job: The job.
        on_new_place: Called when the place has changed.

    Attributes:
        text: The place as part of a sentence, ``3rd in line``; "" while it is not known.
    """

    def __init__(self, client: Client, job: Job, on_new_place: Callable[[], None]) -> None:
        self._client, self._job = client, job
        self._on_new_place = on_new_place
        self._asking: asyncio.Task[None] | None = None
        self._asked = 0.0
        self._denied = 0
        self.text = ""

    async def close(self) -> None:
        """End the request."""
        if self._asking:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def ask(self, queue: str, uid: str) -> None:
        """Ask for the place in the background, unless it was asked for some seconds ago.

        Args:
            queue: The job's queue.
            uid: The job's uid.
        """
        began = time.monotonic()
        if self._denied >= _DENIALS or (self._asked and began - self._asked < _ASK_EVERY):
            return
        if self._asking is None or self._asking.done():
            self._asked = began
            self._asking = asyncio.ensure_future(self._ask(queue, uid))

    def forget(self) -> None:
        """Forget the place: the job waits no more."""
        self.text = ""
        if self._asking:
            self._asking.cancel()

    async def _ask(self, queue: str, uid: str) -> None:
        try:
            async with asyncio.timeout(_ASK_FOR):
                found = await self._place(queue, uid)
            self._denied = 0
        except Refused as error:
            # 404: the API is not served, or Kueue does not know the queue.
            self._denied += error.code in (403, 404)
            found = ""
        except (ClusterFault, TimeoutError):
            found = ""
        if found != self.text:
            self.text = found
            self._on_new_place()

    async def _place(self, queue: str, uid: str) -> str:
        served = many(await self._client.known(f"/apis/{GROUP}"), "versions")
        names = [one.get("version") for one in served]
        version = next((one for one in _VERSIONS if one in names), "")
        (may,) = await allowed(self._client, self._job.place, READ)
        if not version or not may:
            raise Refused("the places in queues are not told.", "", code=403, reason="Forbidden")
        space = f"/apis/{GROUP}/{version}/namespaces/{self._job.place}"
        path = f"{space}/localqueues/{queue}/pendingworkloads"
        # Not by get(), which asks again and again while the API is registered and not served.
        answer = object_of(await self._client.text(path), path)
        return words(answer, uid)


def words(answer: Object, uid: str) -> str:
    """Return the place of a job as part of a sentence; "" if the answer does not have it.

    Args:
        answer: The jobs that wait in a LocalQueue.
        uid: The job's uid.
    """
    for one in many(answer, "items"):
        if any(owner.get("uid") == uid for owner in many(one, "metadata", "ownerReferences")):
            # The server leaves out no zero, but others that speak JSON do.
            own, of_all = (
                _number(one.get(key, 0))
                for key in ("positionInLocalQueue", "positionInClusterQueue")
            )
            if own is None:
                return ""
            if of_all is None or of_all <= own:
                return f"{ordinal(own + 1)} in line"
            return (
                f"{ordinal(own + 1)} in line ({ordinal(of_all + 1)} with the other queues "
                "that share its quota)"
            )
    return ""


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``11th``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number:,}{ending or 'th'}"


def _number(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if fits else None
