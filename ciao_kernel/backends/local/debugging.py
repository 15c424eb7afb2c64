"""Connects a front end to a process of a local job that waits at a prompt."""

from __future__ import annotations

import asyncio

from ciao_kernel.backends.local import hosts, processes
from ciao_kernel.backends.local.record import RECORD_ERRORS, Folder
from ciao_kernel.delivery import site_folder
from ciao_kernel.errors import NoSuchJob, UsageError
from ciao_kernel.model import Replica
from ciao_kernel.model.queries import Streams

_PIECE = 1 << 16


async def debug(
    folder: Folder, host: hosts.Host, replica: Replica, pid: int, streams: Streams
) -> None:
    """Carry a conversation until one side ends it; return at once if no process waits.

    Raises:
        UsageError: The job runs on another machine.
        NoSuchJob: Its folder is gone.
    """
    # Late: nothing else needs it.
    from ciao_kernel.delivery.inspection import debug_bridge

    try:
        job, status = folder.read_job(), folder.read_status()
    except RECORD_ERRORS:
        raise NoSuchJob(f"the folder of {folder.path.name} is gone.") from None
    if status is not None and not host.has(status["supervisor"]):
        name = hosts.name(status["supervisor"])
        raise UsageError(
            f"{folder.path.name} runs on {name}, and only that machine reaches its processes.",
            f"Run the command in a terminal of {name}.",
        )
    mark = f"{processes.MARK}={job['id']}"
    places = [site_folder.path(job["workdir"]), "/dev/shm", "/tmp"]
    found = await asyncio.to_thread(debug_bridge.connect, mark, str(replica), pid, places)
    if found is None:
        return
    reader, writer = await asyncio.open_unix_connection(sock=found)
    sending = asyncio.ensure_future(_send(writer, streams))
    try:
        while data := await reader.read(_PIECE):
            streams.out(data)
    except ConnectionError:
        pass
    finally:
        sending.cancel()
        writer.close()
        await asyncio.gather(sending, return_exceptions=True)


async def _send(writer: asyncio.StreamWriter, streams: Streams) -> None:
    if streams.input is not None:
        async for data in streams.input:
            writer.write(data)
            await writer.drain()
