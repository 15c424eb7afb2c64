"""Reads the files of ``%output`` that a pod has pushed to a registry (``by:registry``)."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from ciao_kernel.backends.kubernetes.cluster.pod_view import LatestPod
from ciao_kernel.backends.kubernetes.output.output_registry import Repositories
from ciao_kernel.backends.kubernetes.output.output_store import end_of_sidecar
from ciao_kernel.background import in_thread
from ciao_kernel.delivery.output.registry_push import MANIFEST, TAG
from ciao_kernel.delivery.replica_files import DATA, DONE, END, FILE, HEADER, LIST
from ciao_kernel.delivery.transfers import final, size_text
from ciao_kernel.errors import BackendError, RegistryFault
from ciao_kernel.kube.client import Object
from ciao_kernel.model.queries import Streams
from ciao_kernel.oci import artifact
from ciao_kernel.oci.artifact import Artifact, ArtifactFile
from ciao_kernel.oci.reference import Reference, is_digest
from ciao_kernel.oci.repository import Repository
from ciao_kernel.visible_text import visible

_log = logging.getLogger(__name__)

_WORDS, _TRIES, _PAUSE = 400, 6, 0.5
_FORBIDDEN = (401, 403, 405)
"""Codes of a registry in which nothing can be deleted, or not by this account."""
_BY_DIGEST_ALONE = (400, 405)
"""Codes of a registry that deletes no tags; without what it points to, a tag is of no use."""
_SMALL, _BATCH = 1 << 20, 64
"""Bytes and number of the files that are read in one step."""
_CODE = re.compile(r"HTTP (\d{3})$")


class PushedOutput:
    """The artifact of one pod; :meth:`execute` takes the place of a command in it.

    Args:
        open: Returns the repository.
        view: The pod.
        end: Returns how the sidecar of a pod has ended; None before that.
    """

    def __init__(
        self,
        open: Callable[[], Repositories],
        view: LatestPod,
        end: Callable[[Object], Object | None],
    ) -> None:
        self._open, self._view, self._end = open, view, end
        self._uid = view.uid
        self._tag = f"{TAG}{self._uid}"
        self._found: Artifact | None = None

    async def execute(self, command: Sequence[str], streams: Streams) -> int:
        """Wait until the artifact is pushed, and pass its files on; the command is not run.

        Raises:
            BackendError: There is none, or it cannot be read.
        """
        end = await end_of_sidecar(self._view, self._end)
        message = str((end or {}).get("message") or "").strip()
        if end is not None and end.get("exitCode") != 0:
            raise refusal(message, self._open().image)
        opened = self._open()
        repository = await opened.with_right("pull")
        version = message if is_digest(message) else self._tag
        self._found = found = await in_thread(lambda: artifact.read(repository, version))
        if found is None:
            raise BackendError(
                "it was stopped before its program had ended."
                if end is None
                else f"{opened.image.name} does not have them any more: they were fetched "
                "elsewhere, or deleted."
            )
        if found.pod != self._uid:
            raise BackendError(f"{opened.image.name}:{version} is of another pod.")
        if found.listing.get("too_many"):
            raise BackendError(
                "it has too many files for an artifact of a registry.",
                "Let the program pack them into an archive.",
            )
        size, limit = found.listing.get("bytes"), found.listing.get("limit")
        if isinstance(size, int) and isinstance(limit, int) and size > limit:
            raise BackendError(
                f"its files have {size_text(size)}, and fetchLimit was {size_text(limit)} for this "
                "job.",
                "`%ciao config fetchLimit=…` raises the limit.",
            )
        await self._pass_on(repository, found, streams.out)
        return 0

    async def remove(self) -> str:
        """Delete the artifact, whose files are here; return why that is not possible, or ""."""
        if self._found is None:
            return ""
        digest, opened = self._found.digest, self._open()
        said = f"files of %output stay in {opened.image.name}"
        for number in range(_TRIES):
            await asyncio.sleep(_PAUSE * number)
            try:
                repository = await opened.with_right("pull,delete")
                await in_thread(functools.partial(_delete, repository, digest, self._tag))
                return ""
            except BackendError as error:
                _log.info("an artifact was not deleted: %s", error.message)
                if getattr(error, "code", 0) in _FORBIDDEN:
                    return f"{said}, which deletes nothing for you."
                why = error.message
                if not getattr(error, "passing", False):
                    break
        return f"{said}: {why.rstrip('.')}."

    async def _pass_on(
        self, repository: Repository, found: Artifact, out: Callable[[bytes], object]
    ) -> None:
        last = final(out)

        def put(kind: bytes, body: bytes) -> None:
            last(HEADER.pack(kind, len(body)) + body)

        put(LIST, json.dumps(found.listing).encode())
        listed = found.listing.get("runs")
        runs = set(map(str, listed)) if isinstance(listed, list) else set()
        for batch in _batches(found.files):
            small = await in_thread(functools.partial(_whole, repository, batch))
            for one, data in zip(batch, small, strict=True):
                told = {"path": one.path, "size": one.size, "offset": 0}
                told["runs"] = one.path in runs
                put(FILE, json.dumps(told).encode())
                if data is None:
                    await _read(repository, one, functools.partial(put, DATA))
                else:
                    put(DATA, data)
                put(END, one.digest.partition(":")[2].encode())
        put(DONE, b"")


def _delete(repository: Repository, digest: str, tag: str) -> None:
    """Delete an artifact, and its tag, which some registries keep."""
    repository.delete_manifest(digest)
    if repository.has_manifest(tag, MANIFEST) != digest:
        return
    try:
        repository.delete_manifest(tag)
    except RegistryFault as fault:
        if fault.code not in _BY_DIGEST_ALONE:
            raise


def _batches(files: Sequence[ArtifactFile]) -> Iterator[Sequence[ArtifactFile]]:
    """Yield files that are read in one step: a step costs more than a small file."""
    batch: list[ArtifactFile] = []
    for one in files:
        if batch and (len(batch) == _BATCH or sum(o.size for o in batch) + one.size > _SMALL):
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _whole(repository: Repository, batch: Sequence[ArtifactFile]) -> list[bytes | None]:
    """Return small layers, and None for a large one."""
    return [None if one.size > _SMALL else _small(repository, one) for one in batch]


def _small(repository: Repository, one: ArtifactFile) -> bytes:
    failed = 0
    while one.size:
        try:
            name = repository.reference.name
            with closing(repository.open_blob(one.digest, one.size, name)) as stream:
                return b"".join(stream)
        except RegistryFault as fault:
            failed += 1
            if not fault.passing or failed == _TRIES:
                raise
        time.sleep(_PAUSE * failed)
    return b""


async def _read(repository: Repository, one: ArtifactFile, out: Callable[[bytes], object]) -> None:
    """Pass a layer on; a connection that is cut is opened again where it was."""
    done, failed = 0, 0
    while done < one.size:
        before = done
        try:
            name = repository.reference.name
            begin = functools.partial(repository.open_blob, one.digest, one.size, name, done)
            with closing(await in_thread(begin)) as stream:
                following = functools.partial(next, iter(stream), b"")
                while piece := await in_thread(following):
                    out(piece)
                    done += len(piece)
        except RegistryFault as fault:
            failed = 0 if done > before else failed + 1
            if not fault.passing or failed >= _TRIES:
                raise
            _log.info("a file goes on at byte %d: %s", done, fault.message)
            await asyncio.sleep(_PAUSE * (failed + 1))


def refusal(message: str, image: Reference) -> BackendError:
    """Return the error for what the container says, with what may help."""
    last = message.strip()[-_WORDS:].rpartition("\n")[2]
    words = visible(last).rstrip(".") or "its container failed"
    code = found[1] if (found := _CODE.search(words)) else ""
    hints = {
        "400": "Does it take artifacts of OCI?",
        "401": f"Has the Secret of %pushSecret a password that may push to {image.name}?",
        "403": f"Has the Secret of %pushSecret a password that may push to {image.name}?",
        "404": f"Some registries need the repository {image.name} before.",
        "405": "It is read-only: name another registry with %registry=….",
        "413": "The limit is set by its administrator, or in a proxy before it.",
    }
    hint = hints.get(code, "")
    if "cannot be reached from the pod" in words:
        hint = "Can pods of the namespace reach it? A NetworkPolicy may forbid it."
    return BackendError(f"{words}.", hint)
