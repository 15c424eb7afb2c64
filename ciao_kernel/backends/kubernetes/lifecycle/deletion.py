"""Deletes jobs with all their objects, and waits until they are gone."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ciao_kernel.backends.kubernetes.apis import job_metadata, template_holder
from ciao_kernel.backends.kubernetes.lifecycle import beside, source_owners
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import finalizers
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest

if TYPE_CHECKING:
    from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects

_GONE = 30.0
"""Seconds that pods may take to end beyond their grace period."""
_HELD = 10.0
"""Same, if a finalizer keeps the job: then its pods are not told to end before."""
_USUAL = 8.0
"""Seconds that pods take to end if they use the whole default grace period of ciao."""
_FIRST_LOOK, _LAST_LOOK = 0.15, 2.0
_NAMING = 0.4
"""Seconds from its start in which a removal may find out, and report, what is still ending."""
_NAMED = 3
"""Limit of pods that a sentence names; a job may have a thousand."""

_Key = tuple[str, str, str]
"""Place, name and uid of a job."""


class Deletions:
    """Deletes jobs of one backend, and records for each what is left."""

    def __init__(self) -> None:
        self._left: dict[_Key, str] = {}

    def names(self, place: str) -> set[str]:
        """Return the names of jobs that this process is deleting now."""
        return {name for where, name, _ in self._left if where == place}

    def ends(self, place: str, name: str) -> bool:
        """Return whether this process is deleting a job of that name now."""
        return name in self.names(place)

    async def wait_until_deleted(self, place: str, name: str) -> None:
        """Wait until the job is gone and its name is free, for the usual time of pods at most."""
        until = time.monotonic() + _USUAL
        while self.ends(place, name) and time.monotonic() < until:
            await asyncio.sleep(_FIRST_LOOK)

    def left(self, job: Job) -> str:
        """Describe what is left of a job under deletion, as part of a sentence; "" if nothing."""
        return self._left.get(_key(job), "")

    async def remove(
        self,
        client: Client,
        job: Job,
        path: str,
        stop_certain: Callable[[], None],
        *,
        first_only: bool = False,
        known: Objects | None = None,
        uncertain: Callable[[], None] = lambda: None,
    ) -> bool:
        """Delete a job with everything that it owns; return when all of it is gone.

        Args:
            client: The job's API server.
            job: Its name and namespace, and its uid: a later job of the same name stays.
            path: Path of its object.
            stop_certain: Called after the API server has accepted the deletion, when it is clear
                what is still ending, or earlier if that takes long; perhaps more than once.
            first_only: Return at once if somebody else has deleted the job before.
            known: Its objects, to find what it owns if it is deleted already.
            uncertain: Called if the answer to our deletion was lost: it may be accepted.

        Returns:
            Whether this call deleted the job, and not somebody else before.

        Raises:
            ClusterFault: Objects are left after their grace period, or the server does not answer.
            Refused: This user may not delete the job.
        """
        began, ours = time.monotonic(), False
        with self._reporting_leftovers(job):
            try:
                item = await client.find(path)
                holder = await template_holder.of(client, item, job.place) if item else None
                uid = job.uid or str(get(item, "metadata", "uid") or "")
                if item and item["metadata"].get("uid") == uid:
                    ending = get(item, "metadata", "deletionTimestamp") is not None
                    with _telling_loss(uncertain if not ending else None):
                        ours = await client.delete(path, uid=uid) and not ending
                elif known is not None:
                    item, holder = known.job, known.holder
            except ClusterFault as fault:
                hint = f"It may still run; `%ciao delete {job.reference}` tries again."
                raise ClusterFault(fault.message, hint) from fault
            if first_only and not ours:
                return False
            self._tell(job, "it is deleted")
            soon = max(0.0, began + _NAMING - time.monotonic())
            late = asyncio.get_running_loop().call_later(soon, stop_certain)
            try:
                await source_owners.wait_until_owned(uid)  # Kubernetes then removes them too
                await self._wait(client, job, path, uid, item, holder, stop_certain)
            finally:
                late.cancel()
                stop_certain()
        return ours

    @contextlib.contextmanager
    def _reporting_leftovers(self, job: Job) -> Iterator[None]:
        """Report what is left during a removal; at first, that is the whole job."""
        self._tell(
            job,
            "the API server has not answered yet. Until then the job may keep running; "
            f"`%ciao delete {job.reference}` asks again",
        )
        try:
            yield
        finally:
            self._left.pop(_key(job), None)

    def _tell(self, job: Job, text: str) -> None:
        self._left[_key(job)] = text

    async def _wait(
        self,
        client: Client,
        job: Job,
        path: str,
        uid: str,
        item: Manifest | None,
        holder: Manifest | None,
        named: Callable[[], None],
    ) -> None:
        """Wait until all objects are gone; pods may use their grace period."""
        core = f"/api/v1/namespaces/{job.place}"
        query = {"labelSelector": job_metadata.selector(job), "limit": "100"}
        needed, run = beside.of(job, item, holder), _run(item)
        began, pause, grace = time.monotonic(), _FIRST_LOOK, 0.0
        while True:
            try:
                now, listed, *found = await asyncio.gather(
                    client.find(path),
                    client.get(f"{core}/pods", **query),
                    *(client.find(one.path) for one in needed),
                )
            except ClusterFault as fault:
                text = f"it is deleted, but its end is not confirmed: {fault.message}"
                raise ClusterFault(text, f"`%ciao describe {job.reference}` checks it.") from fault
            except Refused as error:
                if error.code != 403:
                    raise
                return  # The job is deleted, even if this user may not check that.
            pods = [
                pod
                for pod in many(listed, "items")
                if job_metadata.is_part_of(pod, uid, job.run or run)
            ]
            own = [now] if now and get(now, "metadata", "uid") == uid else []
            left = [f"{job.name} itself{_held(one)}" for one in own]
            left += [f"pod {pod['metadata']['name']}{_held(pod)}" for pod in pods[:_NAMED]]
            if len(pods) > _NAMED:
                left.append("other pods")
            left += [
                f"{of.kind} {of.name}{_held(one)}"
                for of, one in zip(needed, found, strict=True)
                if one and (_owned(one, uid) or (run and _is_dependent(one, run)))
            ]
            if not left:
                return
            text = ", ".join(left)
            self._tell(job, f"it is deleted, and Kubernetes is removing {text}")
            named()
            grace = max([grace, *map(grace_of, pods)])
            held = any(map(finalizers.holders, own))
            if time.monotonic() - began > (_HELD if held else grace + _GONE):
                raise ClusterFault(
                    f"it is deleted, but these objects still exist: {text}.",
                    "Kubernetes waits until whoever set the finalizer removes it."
                    if held
                    else "Kubernetes removes them when their nodes answer.",
                )
            await asyncio.sleep(pause)
            pause = min(_LAST_LOOK, pause * 1.3)


@contextlib.contextmanager
def _telling_loss(uncertain: Callable[[], None] | None) -> Iterator[None]:
    """Tell if a request fails that the API server may have accepted."""
    try:
        yield
    except (ClusterFault, Refused) as error:
        # Something before a server that has gone away answers 502 to 504 in its place.
        if uncertain and not (isinstance(error, Refused) and error.code < 500):
            uncertain()
        raise


def _key(job: Job) -> _Key:
    return job.place, job.name, job.uid


def grace_of(pod: Manifest) -> float:
    """Return the seconds in which a deleted pod ends if its node answers."""
    # Late: `ciao logs` deletes nothing.
    from ciao_kernel.backends.kubernetes.output import output_sidecar

    if (own := output_sidecar.grace(pod)) is not None:
        return own
    told = get(pod, "spec", "terminationGracePeriodSeconds")
    return float(told) if isinstance(told, int) else 0.0


def _held(item: Manifest) -> str:
    """Return who keeps a deleted object, to follow its name; "" if nobody does."""
    by = finalizers.words(item)
    return f" (kept by {by})" if by else ""


def _owned(item: Manifest, uid: str) -> bool:
    owners = many(item, "metadata", "ownerReferences")
    return any(owner.get("uid") == uid for owner in owners)


def _is_dependent(item: Manifest, run: str) -> bool:
    """Return whether an object is the Service or the runtime of a submission.

    A ConfigMap owns them.
    """
    return get(item, "spec") is not None and _run(item) == run


def _run(item: Manifest | None) -> str:
    """Return the submission of an object, which anybody may have written; "" if unknown."""
    return str(get(item, "metadata", "annotations", job_metadata.RUN) or "")
