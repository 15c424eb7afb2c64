"""Files of ``%output`` through a bucket (``by:s3``): addresses for the pods, and the way back.

A pod gets an address for each of its replicas at which one object can be written. The kernel signs
them, and another one to read the object when the pod has written it.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ciao_kernel.backends.kubernetes.cluster.pod_view import LatestPod
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.config import Settings
from ciao_kernel.delivery.object_store import bucket, download
from ciao_kernel.delivery.output.registry_push import PROGRAM
from ciao_kernel.delivery.replica_files import HEADER, POD
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Object
from ciao_kernel.model import Manifest, Replica
from ciao_kernel.model.queries import Streams
from ciao_kernel.visible_text import visible

ADDRESSES = "CIAO_OUTPUT_ADDRESSES"
"""Variable of the sidecar with the address for each replica. Who has one can write that object."""
_HIDDEN = (ADDRESSES, PROGRAM)
TOKEN = "ciao-kernel/output-token"
"""Annotation of the pods: a part of the names of the objects, which nobody can guess."""
_LOOK, _WORDS = 5.0, 200
MOST = 100
"""Replicas of a job: each pod template has all addresses."""
_LONGEST = 100_000
"""Bytes of all addresses: Linux starts no process with a variable of 128 KiB."""
_TOKEN = re.compile(r"[0-9a-f]{32}")
_ABOUT = 1 << 28
"""Bytes that messages about files may have, besides the files."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The addresses in a bucket to which the pods of a job write their files."""

    token: str
    addresses: str = field(repr=False)

    @property
    def notes(self) -> dict[str, str]:
        """The annotation of the pods."""
        return {TOKEN: self.token}

    @property
    def variables(self) -> dict[str, str]:
        """The variable of the container that sends."""
        return {ADDRESSES: self.addresses}

    @property
    def hidden(self) -> bool:
        """False: an address is good for one object of this job alone."""
        return False

    def mounted(self, known: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
        """Return no volumes."""
        return [], []


def upload(settings: Settings, replicas: Sequence[Replica], *, real: bool) -> Upload:
    """Return the addresses for the replicas of a new job.

    Args:
        settings: The bucket.
        replicas: The replicas.
        real: False for a dry run, whose objects are shown.

    Raises:
        BackendError: There are no credentials for the bucket, or too many addresses.
    """
    token = secrets.token_hex(16)
    store = bucket.find(settings.output_store)
    if not real:
        return Upload(token, "(signed addresses)")
    signed = {str(one): store.signed("PUT", _name(token, one)) for one in replicas}
    text = json.dumps(signed)
    if len(text) > _LONGEST:
        raise BackendError(
            f"the addresses in the bucket for {len(signed)} replicas do not fit into a pod.",
            "Write %output=by:exec, or let the program write to a %volume.",
        )
    return Upload(token, text)


class RunObjects:
    """The objects of one run in warm replicas: each replica writes one when the run has ended.

    Args:
        settings: The bucket.

    Raises:
        BackendError: There are no credentials for the bucket.
    """

    def __init__(self, settings: Settings) -> None:
        self._store = bucket.find(settings.output_store)
        self._token = secrets.token_hex(16)
        self._limit = int(settings.fetch_limit) + _ABOUT

    def address(self, replica: Replica) -> str:
        """Return the address at which a replica writes its object."""
        return self._store.signed("PUT", _name(self._token, replica))

    async def read(self, replica: Replica, out: Callable[[bytes], object]) -> None:
        """Pass on what a replica has written."""
        await download.read(self._store, _name(self._token, replica), self._limit, out)


def hidden(item: Manifest) -> Manifest:
    """Return an object for display, without the addresses and long programs."""
    text = json.dumps(item)
    if not any(name in text for name in _HIDDEN):
        return item
    masked: Manifest = _masked(json.loads(text))
    return masked


def _masked(part: Any) -> Any:
    if isinstance(part, dict):
        if part.get("name") in _HIDDEN:
            return {**part, "value": "…"}
        return {key: _masked(value) for key, value in part.items()}
    return [_masked(one) for one in part] if isinstance(part, list) else part


def _name(token: str, replica: Replica) -> str:
    return f"ciao-{token}/{replica}"


class StoredOutput:
    """The object of one pod; :meth:`execute` takes the place of a command in it.

    Args:
        settings: The bucket.
        replica: The replica.
        view: Its pod.
        end: Returns how the sidecar of a pod has ended; None before that.
        token: The part of the object's name that a pod which is gone had as its annotation.
    """

    def __init__(
        self,
        settings: Settings,
        replica: Replica,
        view: LatestPod,
        end: Callable[[Object], Object | None],
        token: str = "",
    ) -> None:
        self._settings, self._replica, self._view, self._end = settings, replica, view, end
        self._uid = view.uid
        self._token = token or str(get(view.pod(), "metadata", "annotations", TOKEN) or "")

    async def execute(self, command: Sequence[str], streams: Streams) -> int:
        """Wait until the object is written, and pass it on; command and input have no meaning here.

        Raises:
            BackendError: There is none, or it cannot be read.
        """
        await success_of_sidecar(self._view, self._end)
        if not _TOKEN.fullmatch(self._token) or not self._settings.output_store:
            raise BackendError(
                "their bucket is not known here.",
                "Set outputStore as it was when the job was created.",
            )
        store = await asyncio.to_thread(bucket.find, self._settings.output_store)
        name, limit = _name(self._token, self._replica), int(self._settings.fetch_limit) + _ABOUT
        out = only_of(self._uid, streams.out, "the bucket")
        await download.read(store, name, limit, out)
        return 0


async def end_of_sidecar(view: LatestPod, end: Callable[[Object], Object | None]) -> Object | None:
    """Wait until the sidecar of a pod has ended, and return how.

    None if the pod is gone: it may have written its files, and nobody saw the end of its sidecar.

    Args:
        view: The pod.
        end: Returns how the sidecar has ended; None before that.
    """
    found: Object | None = None
    while (pod := view.pod()) is not None and (found := end(pod)) is None:
        await view.changed(_LOOK)
    return found


async def success_of_sidecar(view: LatestPod, end: Callable[[Object], Object | None]) -> None:
    """Wait as :func:`end_of_sidecar` does.

    Args:
        view: The pod.
        end: Returns how the sidecar has ended; None before that.

    Raises:
        BackendError: It has failed; the message is its own.
    """
    ended = await end_of_sidecar(view, end)
    if ended is not None and ended.get("exitCode") != 0:
        words = str(ended.get("message") or "its container failed").strip()
        raise BackendError(f"{visible(words[-_WORDS:]).rstrip('.')}.")


def only_of(uid: str, out: Callable[[bytes], object], where: str) -> Callable[[bytes], object]:
    """Return what passes on only what a pod wrote; all if the pod is gone and has no known uid.

    The arguments are those of :class:`OfPod`.
    """
    return OfPod(uid, out, where).take if uid else out


class OfPod:
    """Passes an object on if a pod wrote it: the pods of all tries have the same address.

    Args:
        uid: The uid of the pod.
        out: Receives what follows the pod's uid.
        where: Where the object is, for an error.
    """

    def __init__(self, uid: str, out: Callable[[bytes], object], where: str) -> None:
        self._out, self._where = out, where
        self._first = HEADER.pack(POD, len(uid.encode())) + uid.encode()
        self._begin: bytearray | None = bytearray()

    def take(self, data: bytes) -> None:
        """Take the next bytes of the object.

        Raises:
            BackendError: Another pod wrote it.
        """
        if self._begin is None:
            self._out(data)
            return
        self._begin += data
        size = len(self._first)
        if self._begin[:size] != self._first[: len(self._begin)]:
            raise BackendError(
                f"it was stopped before it had written them, and {self._where} has those of an "
                "earlier pod."
            )
        if len(self._begin) >= size:
            rest, self._begin = bytes(self._begin[size:]), None
            self._out(rest)
