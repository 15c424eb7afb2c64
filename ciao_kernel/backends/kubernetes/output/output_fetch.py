"""Fetches the files of ``%output`` from the pods of a followed job, before the pods end.

A replica whose program has ended is held by its sidecar (:mod:`.output_sidecar`). Its files are
fetched, and it is released. The end of some replicas is the end of the job, and the controller
deletes the pods of all others: before that, their files are fetched too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster.pod_view import LatestPod
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.backends.kubernetes.output import output_sidecar, output_state
from ciao_kernel.backends.kubernetes.output.deciding import ends_job
from ciao_kernel.backends.kubernetes.output.removals import Removals
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.background import cancel_all
from ciao_kernel.config import Settings
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.incoming_files import Receiver
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.replica_fetch import MakeFetch, ReplicaFetch
from ciao_kernel.delivery.transfers import Execute, python_of
from ciao_kernel.kube import exec
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.magics.directives import stored_volumes
from ciao_kernel.model import Event, Job, Notice, Replica, Status
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.queries import Streams

if TYPE_CHECKING:
    from ciao_kernel.backends.kubernetes.output.claim_reader import ClaimReader
    from ciao_kernel.backends.kubernetes.output.output_registry import Repositories
    from ciao_kernel.plugins import SentFiles

_AT_ONCE = 4
"""Replicas whose files are fetched at the same time."""
_LAST_WORDS = 0.5


class OutputFetch:
    """Fetches the files of one followed job.

    Args:
        client: The job's API server.
        job: The job.
        folder: The job's folder on this machine.
        settings: Interpreter, limit, waiting times.
        wake: Called when something has changed.
        make: Makes the fetch from one replica.
        on_claim: Returns the files that a pod copies to a claim, as :func:`.sent_files.on_claim`,
            which None means.
    """

    def __init__(
        self,
        client: Client,
        job: Job,
        folder: Path,
        settings: Settings,
        wake: Callable[[], None],
        make: Callable[..., Fetch] = Fetch,
        on_claim: Callable[..., SentFiles] | None = None,
    ) -> None:
        self._make, self._on_claim = make, on_claim
        self._client, self._job, self._settings, self._wake = client, job, settings, wake
        paths = results.path_words(job.header)
        self._has_paths = bool(paths)
        self._words = (*paths, *results.file_words(job.header))
        self._files = ReturnedFiles(folder, job.tries, results.folders(job.header, folder))
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[tuple[str, int, bool], ReplicaFetch] = {}
        """By the uid of the pod, the restarts of its program, and whether that has ended."""
        self._views: dict[str, LatestPod] = {}
        """Pods that send their files, by their uids."""
        self._removals = Removals(self._files, self._emit, wake)
        self._events: list[Event] = []
        self._registry: Callable[[], Repositories] | None = None
        self._reader: ClaimReader | None = None
        self._item: Object = {}
        self._ending_since = 0.0
        self._signed_out = False
        """Whether refused credentials were told since the last arrival of files."""
        self.busy = False
        """Whether the job's end waits for files."""

    def _gives(self, pod: Object) -> bool:
        """Return whether a pod may have something to fetch."""
        return self._has_paths or output_state.has_values(pod)

    def _tell(self, text: str) -> None:
        self._events.append(Notice(text))
        self._wake()

    def events(self) -> Iterator[Event]:
        """Yield the events since the last call."""
        found, self._events = self._events, []
        yield from found

    @property
    def fetching(self) -> bool:
        """Return whether files are coming."""
        return any(not one.settled for one in self._tasks.values())

    def update(self, item: Object, now: Status, pods: Mapping[Replica, Object | None]) -> None:
        """Start and release what the states of the pods require.

        Args:
            item: The job's object.
            now: The job's status.
            pods: Each replica's pod.
        """
        if not self._words:
            return
        self._item = item
        self._look(pods)
        self._release_deleted(pods)
        self._tell_lost(
            {
                str(pod["metadata"]["uid"])
                for pod in pods.values()
                if pod and output_state.stays(pod)
            }
        )
        present = {replica: pod for replica, pod in pods.items() if pod and self._gives(pod)}
        held = {one for one, pod in present.items() if output_state.is_held(pod)}
        mine = [self._start(one, present[one], held=True) for one in sorted(held)]
        ending = any(ends_job(self._job, item, now, one, present[one], held) for one in held)
        if ending:
            self._ending_since = self._ending_since or time.monotonic()
            waited = time.monotonic() - self._ending_since
            running = [
                one for one in present if one not in held and output_state.runs(present[one])
            ]
            if running and waited < self._settings.linger + _LAST_WORDS:
                self.busy = True
                return
            mine += [self._start(one, present[one], held=False) for one in running]
        for one in mine:
            if one.arrived and (not ending or all(other.settled for other in mine)):
                one.release()
        sending = sorted(one for one, pod in present.items() if output_state.sends(pod))
        mine += [self._start(one, present[one], held=False) for one in sending]
        self.busy = self._removals.busy or not all(one.settled for one in mine)

    def job_is_gone(self, pods: Mapping[Replica, Object | None]) -> None:
        """Let what is being fetched come: the job was deleted, and its pods end.

        Args:
            pods: Each replica's pod, as long as it may change.
        """
        self._look(pods)
        self._release_deleted(pods)

    def give_up(self) -> None:
        """Say which files do not come any more: the job was deleted, and the follower ends."""
        for one in self._tasks.values():
            if not one.settled:
                one.say_lost("the job was deleted while they came")
        self._tell_lost()

    def last_events(self) -> Iterator[Event]:
        """Yield the events since the last call, when no pod changes any more."""
        self._tell_lost()
        yield from self.events()

    def _tell_lost(self, staying: Collection[str] = ()) -> None:
        """Say what is certain now of fetches from programs that have ended meanwhile.

        Args:
            staying: The uids of pods that may still be held for their files.
        """
        for (uid, _, _), one in self._tasks.items():
            if one.failed and uid not in staying:
                one.tell()

    def _look(self, pods: Mapping[Replica, Object | None]) -> None:
        by_uid = {str(pod["metadata"]["uid"]): pod for pod in pods.values() if pod}
        for uid, view in self._views.items():
            view.update(by_uid.get(uid))

    def _release_deleted(self, pods: Mapping[Replica, Object | None]) -> None:
        """Let pods end that are being deleted, and whose files are here: nothing waits for them."""
        deleted = {
            str(pod["metadata"]["uid"])
            for pod in pods.values()
            if pod and get(pod, "metadata", "deletionTimestamp") is not None
        }
        for (uid, _, _), one in self._tasks.items():
            if one.arrived and uid in deleted:
                one.release()

    async def close(self) -> None:
        """Stop fetching; what is not released stays for a while.

        Where files are here, a removal that has begun gets some time.
        """
        tasks = [one.task for one in self._tasks.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await self._removals.close()
        await cancel_all(tasks)  # their ends had the same time
        if self._reader is not None:
            await self._reader.close()

    def _start(self, replica: Replica, pod: Object, *, held: bool) -> ReplicaFetch:
        key = (str(pod["metadata"]["uid"]), status.of_pod(pod, replica).restarts, held)
        if key in self._tasks:
            return self._tasks[key]
        way = output_state.sends(pod)
        uid = key[0] if way or held else ""  # files of a program that runs may change
        # A program that runs may just have ended, and its pod is held then.
        early = not (held or way)
        one = ReplicaFetch(
            replica, self._files, self._emit, way or OutputWay.EXEC, uid, holds_back=early
        )
        self._tasks[key] = one
        if held and (earlier := self._tasks.get((*key[:2], False))):
            earlier.supersede()  # its program has ended: all files come by this fetch
        if way:
            # A later follower finds the same, and the user may have changed the files.
            one.arrived = self._files.has_all(replica, uid)
            view = self._views[uid] = LatestPod(pod)
            sent = self._sent(replica, pod, view, way)
            make = self._making(sent.execute, way, sent.options)
            remove = partial(self._removals.remove, replica, sent.remove) if sent.remove else None
            if sent.remove is not None and self._files.leaves_copy(replica, uid):
                self._removals.begin(replica, sent.remove)  # whoever fetched them was stopped
        else:
            # A pod that is held shows nothing of the program's volumes.
            skip = [] if held else stored_volumes.not_named(self._job.header, self._words)
            options = {"more": {"skip": skip}} if skip else None
            make = self._making(self._in_pod(replica, pod, held=held), options=options)
            remove = None
        if not one.arrived:
            work = one.run(make, self._room, waits=held, remove=remove, on_arrival=self._arrived)
            one.task = asyncio.get_running_loop().create_task(work)
            one.task.add_done_callback(lambda _: self._wake())
        return one

    def _sent(self, replica: Replica, pod: Object, view: LatestPod, way: OutputWay) -> SentFiles:
        from ciao_kernel.backends.kubernetes.output import sent_files  # late: few jobs send files

        settings, job = self._settings, self._job
        if way is OutputWay.CLAIM:
            on_claim = self._on_claim or sent_files.on_claim
            self._reader = self._reader or sent_files.claim_reader(self._client, job, self._tell)
            return on_claim(
                self._client, settings, job, replica, view, pod, self._item, self._reader
            )
        self._registry = self._registry or sent_files.registry(self._client, settings, job)
        return sent_files.of_pod(self._client, settings, job, replica, view, way, self._registry)

    def _in_pod(self, replica: Replica, pod: Object, *, held: bool) -> Execute:
        """Return what runs commands in a pod: in the container that holds it, or the program's."""
        container = output_state.NAME if held else job_metadata.container(pod)
        path = f"/api/v1/namespaces/{self._job.place}/pods/{pod['metadata']['name']}"

        async def execute(command: Sequence[str], streams: Streams) -> int:
            return await exec.execute(self._client, path, container, command, streams)

        return execute

    def _making(
        self,
        execute: Execute,
        way: OutputWay = OutputWay.EXEC,
        options: Mapping[str, Any] | None = None,
    ) -> MakeFetch:
        """Return what makes the transfer of a replica's files."""

        def make(receiver: Receiver, **more: Any) -> Fetch:
            python = python_of(self._job, self._settings.cluster_python)
            limit = output_sidecar.limit(self._settings, way)
            return self._make(
                execute,
                python,
                self._words,
                receiver,
                limit,
                on_signed_out=self._tell_signed_out,
                patience=self._settings.follow_patience,
                **more,
                **(options or {}),
            )

        return make

    def _tell_signed_out(self, why: str) -> None:
        """Say once for all replicas that their files wait for accepted credentials."""
        if not self._signed_out:
            self._signed_out = True
            self._tell(
                f"files of %output wait: {why.rstrip('.')}. If you have to sign in, do it now: "
                "they come once the credentials are accepted …"
            )

    def _arrived(self) -> None:
        self._signed_out = False
        self._wake()

    def _emit(self, event: Event) -> None:
        self._events.append(event)
        self._wake()
