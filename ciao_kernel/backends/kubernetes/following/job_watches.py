"""Keeps the object of a followed job and its pods up to date, by one watch each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.background import cancel_all
from ciao_kernel.errors import Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.responses import DENIED as _DENIED
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model import Job

_OF_CONTAINERS = ("name", "restartPolicy", "restartPolicyRules")
_PAUSE = 0.5


class JobWatches:
    """The two watches of one job.

    Args:
        client: The job's API server.
        job: The job.
        path: Path of the job's object, with its name.
        changed: Set at each change, and when a watch ends.
    """

    def __init__(self, client: Client, job: Job, path: str, changed: asyncio.Event) -> None:
        self._client, self._job, self._changed = client, job, changed
        collection, _, name = path.rpartition("/")
        query = {"fieldSelector": f"metadata.name={name}"}
        self.jobs = WatchedList(client, collection, query, changed)
        """The job's object, or another job that has its name since."""
        self.pods = self._list_of_pods(accepted=False)
        """The pods of all jobs that have had the name."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to watch."""
        self._start(self.jobs.run())
        self._start(self.pods.run())

    async def close(self) -> None:
        """Stop watching."""
        await cancel_all(self._tasks)

    @property
    def lists(self) -> tuple[WatchedList, WatchedList]:
        """Both lists."""
        return self.jobs, self.pods

    @property
    def listed(self) -> bool:
        """True once both lists were read."""
        return self.jobs.listed and self.pods.listed

    def check(self) -> None:
        """Check that both watches go on.

        Raises:
            ClusterFault: A watch has ended with this error.
            Refused: The server refuses to answer, for example because the credentials ended.
        """
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                if isinstance(error, Refused) and error.code == 401:
                    raise self.signed_out(error)
                raise error

    def list_pods_again(self) -> None:
        """Replace the list of pods by a new one, which is read from the start."""
        self._tasks[-1].cancel()  # the pods' watch, which was started last
        self.pods = self._list_of_pods(accepted=True)
        self._start(self._watch_again(self.pods))

    def _list_of_pods(self, *, accepted: bool) -> WatchedList:
        path = f"/api/v1/namespaces/{self._job.place}/pods"
        query = {"labelSelector": job_metadata.selector(self._job)}
        return WatchedList(self._client, path, query, self._changed, trimmed, accepted=accepted)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._changed.set())
        self._tasks.append(task)

    async def _watch_again(self, pods: WatchedList) -> None:
        """Watch from a new list; a server that just started may refuse allowed requests."""
        denied = time.monotonic()
        while True:
            try:
                await pods.run()
            except Refused as error:
                if error.code == 401 or pods.listed or time.monotonic() - denied > _DENIED:
                    raise
                await asyncio.sleep(_PAUSE)

    def signed_out(self, error: Refused) -> Refused:
        """Return the error for credentials that ended: the job has not ended with them."""
        return Refused(
            f"{error.message.rstrip('.')}; {self._job.name} keeps running.",
            "Sign in to the cluster again; then "
            f"`%ciao attach {self._job.reference}` follows the job again.",
            code=error.code,
            reason=error.reason,
        )


def trimmed(pod: Object) -> Object:
    """Return a pod without the unused fields, which are most of it."""
    kept = dict(pod)
    meta, spec = pod.get("metadata"), pod.get("spec")
    if isinstance(meta, dict):
        kept["metadata"] = {key: meta[key] for key in meta if key != "managedFields"}
    if isinstance(spec, dict):
        kept["spec"] = {key: spec[key] for key in ("nodeName", "restartPolicy") if key in spec}
        for kind in ("containers", "initContainers"):
            if kind == "containers" or kind in spec:
                kept["spec"][kind] = [
                    {key: one[key] for key in _OF_CONTAINERS if key in one}
                    for one in many(spec, kind)
                ]
    return kept
