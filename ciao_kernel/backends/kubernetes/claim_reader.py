"""The pod that reads the claim of a job: made when files are asked for, and deleted after."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ciao_kernel import log
from ciao_kernel.backends.kubernetes import output_claim, status
from ciao_kernel.backends.kubernetes.output_claim import Kept
from ciao_kernel.backends.kubernetes.output_store import only_of, success_of_sidecar
from ciao_kernel.backends.kubernetes.pod_view import LatestPod
from ciao_kernel.delivery.transfers import called, failed
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube import exec
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Replica
from ciao_kernel.model.queries import Streams
from ciao_kernel.visible_text import short, visible

_log = logging.getLogger(__name__)

_STAYS, _START = 60.0, 300.0
"""Seconds without a reader after which the pod ends, and seconds in which it has to start."""
_LOOK, _WORDS = 0.3, 200


class ClaimReader:
    """The pod that reads the claim of one job, for all replicas.

    Args:
        client: The API server.
        namespace: Namespace of the job.
        words: The paths of ``%output``.
    """

    def __init__(self, client: Client, namespace: str, words: Sequence[str]) -> None:
        self._client, self._words = client, tuple(words)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._made: Object | None = None
        self._room = asyncio.Lock()

    async def execute(
        self,
        model: Callable[[], Awaitable[Object]],
        owner: Object,
        command: Sequence[str],
        streams: Streams,
    ) -> int:
        """Run a command in the pod, and return its exit code.

        Args:
            model: Returns a pod of the job, or a template, of which the pod is made.
            owner: The job's object.
            command: The command.
            streams: Its input and output.

        Raises:
            BackendError: The pod is refused, or does not start.
        """
        async with self._room:
            if self._made is None or not await self._runs(self._made):
                await self._remove()
                self._made = await self._start(await model(), owner)
            path = f"{self._pods}/{self._made['metadata']['name']}"
        return await exec.execute(self._client, path, output_claim.READER, command, streams)

    async def close(self) -> None:
        """Delete the pod."""
        async with self._room:
            await self._remove()

    async def _runs(self, made: Object) -> bool:
        found = await self._client.find(f"{self._pods}/{made['metadata']['name']}")
        return bool(status.get(found, "status", "phase") == "Running")

    async def _start(self, pod: Object, owner: Object) -> Object:
        body = output_claim.reader(pod, self._words, _STAYS, owner)
        try:
            made = self._made = await self._client.create(self._pods, body)
        except Refused as error:
            raise BackendError(
                f"the pod that reads the claim is refused: {error.message}", error.hint
            ) from error
        path, since = f"{self._pods}/{made['metadata']['name']}", time.monotonic()
        now: Any = made
        while now is not None and time.monotonic() - since < _START:
            phase = status.get(now, "status", "phase")
            if phase == "Running":
                return made
            if phase in ("Failed", "Succeeded"):
                break
            await asyncio.sleep(_LOOK)
            now = await self._client.find(path)
        await self._remove()
        raise BackendError(f"the pod that reads the claim did not start: {_why(now)}.")

    async def _remove(self) -> None:
        made, self._made = self._made, None
        if made is None:
            return
        path, uid = f"{self._pods}/{made['metadata']['name']}", made["metadata"]["uid"]
        with log.ignored(_log, "deleting the pod that reads a claim", BackendError):
            await self._client.delete(path, uid=uid)


def _why(pod: Any) -> str:
    if pod is None:
        return "it was deleted"
    reason, words = status.waiting_reason(pod)
    return visible(short(words or reason or "its node has not started it", _WORDS)).rstrip(".")


class SavedOutput:
    """The files that one pod has copied to a claim.

    Args:
        reader: Reads the claim.
        replica: The replica.
        view: Its pod.
        kept: Where the files are.
        model: Returns the whole pod, or a template.
        owner: The job's object.
        end: Returns how the sidecar of a pod has ended; None before that.
    """

    def __init__(
        self,
        reader: ClaimReader,
        replica: Replica,
        view: LatestPod,
        kept: Kept | None,
        model: Callable[[], Awaitable[Object]],
        owner: Object,
        end: Callable[[Object], Object | None],
    ) -> None:
        self._reader, self._replica, self._view, self._end = reader, replica, view, end
        self._model, self._owner = model, owner
        self._uid = view.uid
        self._kept = kept
        self._python = "python3"

    @property
    def folder(self) -> str:
        """The replica's folder, as the pod that reads it sees it."""
        return self._kept.of(self._replica) if self._kept is not None else ""

    async def execute(self, command: Sequence[str], streams: Streams) -> int:
        """Wait until the files are on the claim, and run the command that sends them.

        Raises:
            BackendError: They are not there, or cannot be read.
        """
        await success_of_sidecar(self._view, self._end)
        if self._kept is None:
            raise BackendError("their place on a claim is not known here.")
        self._python = command[0]
        out = only_of(self._uid, streams.out, "the claim")
        given = Streams(out, streams.err, streams.input)
        try:
            return await self._reader.execute(self._model, self._owner, command, given)
        except (ClusterFault, Refused):
            raise  # perhaps the connection alone
        except BackendError as error:
            hint = f"{self._kept.sentence} {error.hint}".strip()
            raise BackendError(error.message, hint) from error

    async def remove(self) -> str:
        """Remove the replica's folder, whose files are here; return why it stays, or ""."""
        if self._kept is None:
            return ""
        words = bytearray()
        request = {"do": "remove", "path": self.folder}
        try:
            command, streams = called(self._python, request, lambda _: None, words.extend)
            code = await self._reader.execute(self._model, self._owner, command, streams)
            why = failed(code, bytes(words)) if code else ""
        except BackendError as error:
            why = error.message
        if not why:
            return ""
        return f"files of %output could not be removed: {why.rstrip('.')}. {self._kept.sentence}"
