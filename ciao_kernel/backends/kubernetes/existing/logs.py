"""Reads the output of a replica so far; :mod:`.follow` follows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from ciao_kernel.backends.kubernetes.apis import job_metadata, job_pods
from ciao_kernel.backends.kubernetes.cluster.paging import pages
from ciao_kernel.backends.kubernetes.existing import ended_log, kept_log
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube import instances, timestamps
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.magics.directives import warm
from ciao_kernel.model import Job, Manifest, Replica
from ciao_kernel.model.log_pieces import whole_lines
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions, last_lines
from ciao_kernel.model.times import clock_time

_ERROR_TEXT = 200
"""Status of an answer that has an error text of the kubelet in place of lines."""


async def read(
    client: Client, job: Job, replica: Replica, options: LogOptions, kept: Path
) -> bytes:
    """Read the log of the pod, otherwise the log saved on this machine.

    The saved log also completes the node's, which has the newest 10 MiB, and one earlier run of the
    container at most.

    Args:
        client: The API server.
        job: The replica's job.
        replica: The replica to read.
        options: The part to read.
        kept: The saved log of this replica, which may be missing.

    Raises:
        Refused: The server refuses, and no log was saved here.
        BackendError: The requested part does not exist.
    """
    is_warm = warm.is_warm(job.header)
    # Before the request: what is saved then is in its answer, or older.
    saved = await asyncio.to_thread(_size, kept) if is_warm and options == WHOLE_LOG else 0
    try:
        pieces = _of_node(client, job, replica, options)
        data = b"".join([piece async for piece in pieces])
        if saved:
            data = await asyncio.to_thread(kept_log.complete, data, kept, saved)
        elif not is_warm and _has_beginning(data, options):
            data = await asyncio.to_thread(kept_log.with_beginning, data, kept)
    except (Refused, ClusterFault) as error:
        if not _use_kept(error, job, replica, options, kept):
            return b""
        data = await asyncio.to_thread(kept.read_bytes)
    return data if options.tail is None else last_lines(data, options.tail)


async def stream(
    client: Client, job: Job, replica: Replica, options: LogOptions, kept: Path
) -> AsyncGenerator[bytes, None]:
    """Yield what :func:`read` returns, in pieces that end anywhere.

    The last lines alone, and the log of a warm replica, are one piece: the begin of that log may be
    looked for in all of the saved one.

    Raises:
        Refused, BackendError: As :func:`read`.
        ClusterFault: Also if the answer is cut off after some pieces.
    """
    if options.tail is not None or warm.is_warm(job.header):
        yield await read(client, job, replica, options, kept)
        return
    found = _of_node(client, job, replica, options)
    if not (options.previous or options.timestamps or options.since):
        found = kept_log.begun(found, kept)
    is_begun = False
    try:
        async with aclosing(found):
            async for piece in found:
                is_begun = True
                yield piece
            return
    except (Refused, ClusterFault) as error:
        if is_begun:  # the saved lines would come a second time
            hint = f"Lines saved on this machine are in {kept}." if kept.exists() else "Try again."
            said = error.message.rstrip(".")
            raise ClusterFault(f"the log of {replica} is not complete: {said}.", hint) from error
        if not _use_kept(error, job, replica, options, kept):
            return
    async with aclosing(kept_log.read(kept)) as saved:
        async for piece in saved:
            yield piece


async def _of_node(
    client: Client, job: Job, replica: Replica, options: LogOptions
) -> AsyncGenerator[bytes, None]:
    """Yield what the node has of a log, in pieces of whole lines."""
    pod = await _pod(client, job, replica)
    path = f"/api/v1/namespaces/{job.place}/pods/{pod['metadata']['name']}/log"
    container = job_metadata.container(pod)
    query = {"container": container, **_query(options, client.clock)}
    if options.previous or instances.over(pod, container):
        answer = ended_log.read(client, path, query)
    else:
        answer = whole_lines(client.pieces(path, **query))
    words, has_lines = b"", False
    async with aclosing(answer):
        async for piece in answer:
            words = words or piece
            if data := timestamps.lines(piece, stamps=options.timestamps):
                has_lines = True
                yield data
    if words and not has_lines:  # an error text of the kubelet
        raise Refused(words.decode(errors="replace").strip(), code=_ERROR_TEXT)


def _use_kept(
    error: Refused | ClusterFault, job: Job, replica: Replica, options: LogOptions, kept: Path
) -> bool:
    """Return whether the saved log has the lines that the cluster does not return.

    Raises:
        Refused, ClusterFault: The error, if no log was saved.
        BackendError: The requested part does not exist, or no line of it has a time here.
    """
    gone = isinstance(error, Refused) and error.code in (400, 404)
    if options.previous and isinstance(error, Refused) and error.code == 400:
        raise BackendError(
            f"{replica} of {job.name} was not restarted in its pod: there is no previous log.",
            "Omit --previous.",
        ) from None
    if options.previous and isinstance(error, Refused) and error.code == _ERROR_TEXT:
        raise BackendError(
            f"the node does not keep the previous log of {replica} any more "
            f"({error.message.rstrip('.')}).",
            "Omit --previous: the log saved on this machine may have its lines.",
        ) from None
    if not kept.exists():
        if gone:  # not started yet, or already deleted
            return False
        raise error
    if options.previous or options.timestamps or options.since:
        raise BackendError(
            f"the log of {replica} cannot be read from the cluster ({error.message.rstrip('.')}"
            f"); the lines saved on this machine are in {kept}, without times.",
            "Omit --previous, --timestamps and --since to see them.",
        ) from error
    if not gone:  # the log may have newer lines
        options.tell(
            f"the lines of {replica} are those saved on this machine until "
            f"{clock_time(kept.stat().st_mtime)}: the cluster does not return its log "
            f"({error.message.rstrip('.')})."
        )
    return True


def _size(kept: Path) -> int:
    try:
        return kept.stat().st_size
    except OSError:
        return 0


def _has_beginning(data: bytes, options: LogOptions) -> bool:
    """Return whether lines before those of the node were asked for."""
    if options.previous or options.timestamps or options.since:
        return False
    return options.tail is None or data.count(b"\n") < options.tail


async def _pod(client: Client, job: Job, replica: Replica) -> Manifest:
    """Return the pod of a replica that counts.

    Its labels identify it, and not its name: each API chooses names as it likes.

    Raises:
        Refused: The server refuses, or there is no pod (code 404).
    """
    path = f"/api/v1/namespaces/{job.place}/pods"
    for selector in job_metadata.pods_of(job, replica):
        found = job_pods.of_replicas(job, await pages(client, path, selector))
        if pod := found.get(replica):
            return pod
    raise Refused(f"{replica} of {job.name} has no pod.", code=404)


def _query(options: LogOptions, clock: ServerClock) -> dict[str, str]:
    query = {"timestamps": "true"}  # they tell lines from an error text of the kubelet
    if options.tail is not None:
        query["tailLines"] = str(options.tail)
    if options.previous:
        query["previous"] = "true"
    if options.since:
        query["sinceTime"] = status.text(clock.to_server(options.since))
    return query
