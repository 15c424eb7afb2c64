"""The pod that reads the claim of a job: made when files are asked for, and deleted after."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ciao_kernel import log
from ciao_kernel.backends.kubernetes.cluster.pod_view import LatestPod
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.backends.kubernetes.output import output_claim, reader_start
from ciao_kernel.backends.kubernetes.output.output_claim import Kept
from ciao_kernel.backends.kubernetes.output.output_store import only_of, success_of_sidecar
from ciao_kernel.backends.kubernetes.output.reader_start import Patience
from ciao_kernel.delivery.replica_files import BUSY, HEADER, POD
from ciao_kernel.delivery.transfers import called, failed, is_final
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.client import Object
from ciao_kernel.model import Replica
from ciao_kernel.model.queries import Streams

_log = logging.getLogger(__name__)

_STAYS = 60.0
"""Seconds without a command after which the pod ends."""
_FIRST = 256
"""Bytes of a transfer that have the uid of the pod which wrote the files."""
_TRIES, _PAUSE = 4, 0.5
"""Tries to remove files of which the API server or the connection failed, and seconds before the
first new one."""

Run = Callable[[str, Sequence[str], Streams], Awaitable[int]]
"""Runs a command in the pod with this path, and returns its exit code."""


class Reader(Protocol):
    """What reads a claim, as :class:`ClaimReader` does."""

    async def execute(
        self,
        model: Callable[[], Awaitable[Object]],
        owner: Object,
        command: Sequence[str],
        streams: Streams,
    ) -> int:
        """Run a command, and return its exit code."""


class Pods(reader_start.Pods, Protocol):
    """What is needed of an API server; :class:`ciao_kernel.kube.client.Client` has it."""

    async def create(self, path: str, body: Object) -> Object:
        """Create an object."""

    async def delete(self, path: str, *, uid: str) -> object:
        """Delete an object, if it has this uid."""


class ClaimReader:
    """The pod that reads the claim of one job, for all replicas.

    Args:
        pods: The API server.
        run: Runs a command in the pod.
        namespace: Namespace of the job.
        words: The paths of ``%output``.
        tell: Receives a sentence if the pod does not start soon.
        patience: How long its start may take.
    """

    def __init__(
        self,
        pods: Pods,
        run: Run,
        namespace: str,
        words: Sequence[str],
        *,
        tell: Callable[[str], None] = lambda _: None,
        patience: Patience = Patience(),  # noqa: B008 - frozen
    ) -> None:
        self._client, self._run, self._words = pods, run, tuple(words)
        self._tell, self._patience = tell, patience
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._made: Object | None = None
        self._failure: tuple[float, BackendError] | None = None
        """When and why no pod started: replicas that end meanwhile do not all wait for one."""
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
            Refused: The server refused the pod or the command. It may take the pod later.
            ClusterFault: The connection was cut, or the pod has ended.
            BackendError: The pod is refused for good, or does not start.
        """
        async with self._room:
            if self._failure and time.monotonic() - self._failure[0] < self._patience.again:
                raise self._failure[1]
            if self._made is None or not await self._runs(self._made):
                await self._remove()
                self._made = await self._start(await model(), owner)
            made = self._made
        try:
            return await self._run(f"{self._pods}/{made['metadata']['name']}", command, streams)
        except Refused as error:
            if not is_final(error) or await self._runs(made):
                raise
            raise ClusterFault("the pod that reads the claim has ended.") from error

    async def close(self) -> None:
        """Delete the pod."""
        async with self._room:
            await self._remove()

    async def _runs(self, made: Object) -> bool:
        found = await self._client.find(f"{self._pods}/{made['metadata']['name']}")
        return bool(get(found, "status", "phase") == "Running")

    async def _start(self, pod: Object, owner: Object) -> Object:
        body = output_claim.reader(pod, self._words, _STAYS, owner)
        try:
            made = self._made = await self._client.create(self._pods, body)
        except Refused as error:
            text = f"the pod that reads the claim is refused: {error.message}"
            if not is_final(error):
                raise Refused(text, error.hint, code=error.code, reason=error.reason) from error
            raise BackendError(text, error.hint) from error
        path = f"{self._pods}/{made['metadata']['name']}"
        try:
            return await reader_start.wait(self._client, path, made, self._patience, self._tell)
        except BackendError as error:
            await self._remove()
            if not isinstance(error, (ClusterFault, Refused)):
                self._failure = time.monotonic(), error
            raise

    async def _remove(self) -> None:
        made, self._made = self._made, None
        if made is None:
            return
        path, uid = f"{self._pods}/{made['metadata']['name']}", made["metadata"]["uid"]
        with log.ignored(_log, "deleting the pod that reads a claim", BackendError):
            await self._client.delete(path, uid=uid)


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
        python: The interpreter of the pod that reads the claim.
        pause: Seconds before the first new try to remove the files.
    """

    def __init__(
        self,
        reader: Reader,
        replica: Replica,
        view: LatestPod,
        kept: Kept | None,
        model: Callable[[], Awaitable[Object]],
        owner: Object,
        end: Callable[[Object], Object | None],
        *,
        python: str = "python3",
        pause: float = _PAUSE,
    ) -> None:
        self._reader, self._replica, self._view, self._end = reader, replica, view, end
        self._model, self._owner = model, owner
        self._uid, self._begin = view.uid, bytearray()
        self._kept = kept
        self._python, self._pause = python, pause

    @property
    def folder(self) -> str:
        """The replica's folder, as the pod that reads it sees it."""
        return self._kept.of(self._replica) if self._kept is not None else ""

    async def execute(self, command: Sequence[str], streams: Streams) -> int:
        """Wait until the files are on the claim, and run the command that sends them.

        Raises:
            Refused, ClusterFault: The reason may pass.
            BackendError: They are not there, or cannot be read.
        """
        await success_of_sidecar(self._view, self._end)
        if self._kept is None:
            raise BackendError("their place on a claim is not known here.")
        out = only_of(self._uid, streams.out, "the claim")
        begin = self._begin = bytearray()

        def take(data: bytes) -> None:
            begin.extend(data[: _FIRST - len(begin)])
            out(data)

        given = Streams(take, streams.err, streams.input)
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
        why, busy = "", False
        for number in range(_TRIES):
            await asyncio.sleep(self._pause * number)
            try:
                why, busy = await self._removed()
                if not busy:  # a cut connection is one that reads, for some seconds
                    break
            except BackendError as error:
                why = error.message
                if is_final(error):
                    break
        if busy:
            return (
                f"the files of {self._replica} are still read on the claim, perhaps by another "
                f"kernel or terminal, which removes them then. {self._kept.sentence}"
            )
        if not why:
            return ""
        return f"files of %output could not be removed: {why.rstrip('.')}. {self._kept.sentence}"

    async def _removed(self) -> tuple[str, bool]:
        """Remove the folder; return why that failed, and whether somebody else reads it."""
        words = bytearray()
        request = {"do": "remove", "path": self.folder, "pod": self._uid or self._writer()}
        command, streams = called(self._python, request, lambda _: None, words.extend)
        code = await self._reader.execute(self._model, self._owner, command, streams)
        return (failed(code, bytes(words)) if code not in (0, BUSY) else ""), code == BUSY

    def _writer(self) -> str:
        """Return the uid of the pod, gone meanwhile, that wrote what has come; "" if unknown."""
        if len(self._begin) < HEADER.size:
            return ""
        kind, size = HEADER.unpack_from(self._begin)
        uid = self._begin[HEADER.size : HEADER.size + size]
        return uid.decode(errors="replace") if kind == POD else ""
