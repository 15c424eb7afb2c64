"""Connects a front end to a process of a local job that waits at a prompt."""

from __future__ import annotations

import asyncio

from ciao_kernel.backends.local import hosts
from ciao_kernel.backends.local.inspection.running import RunningJob
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.delivery import site_folder
from ciao_kernel.model import Replica
from ciao_kernel.model.queries import Streams

_PIECE = 1 << 16
_PATIENCE = 5.0
"""Seconds in which a process must answer."""


async def debug(
    folder: Folder, host: hosts.Host, replica: Replica, pid: int, streams: Streams, rank: str = ""
) -> bool:
    """Carry a conversation until one side ends it; return at once if no process waits.

    Returns:
        False if the prompt of the process is open elsewhere.

    Raises:
        UsageError: The job runs on another machine.
        NoSuchJob: Its folder is gone.
    """
    # Late: nothing else needs it.
    from ciao_kernel.delivery.inspection import debug_bridge

    job = RunningJob(folder, host)
    places = [site_folder.path(job.workdir), "/dev/shm", "/tmp"]
    found = await asyncio.to_thread(debug_bridge.connect, job.mark, str(replica), pid, places, rank)
    if isinstance(found, int):
        return found != debug_bridge.OPEN
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
    return True


async def halt(folder: Folder, host: hosts.Host, replica: Replica, rank: str = "") -> str:
    """Let a process stop at the next line of its program; return how it answered.

    Raises:
        UsageError: The job runs on another machine.
        NoSuchJob: Its folder is gone.
    """
    from ciao_kernel.delivery.inspection import stack_reader

    mark = RunningJob(folder, host).mark
    return await asyncio.to_thread(stack_reader.halt, mark, str(replica), _PATIENCE, rank)


async def _send(writer: asyncio.StreamWriter, streams: Streams) -> None:
    if streams.input is not None:
        async for data in streams.input:
            writer.write(data)
            await writer.drain()
