"""Waits for the files of `%output` that are coming."""

from __future__ import annotations

import asyncio

from ciao_kernel.backends.kubernetes.output.output_fetch import OutputFetch
from ciao_kernel.model import Notice


async def notices_at_end(fetch: OutputFetch, woken: asyncio.Event, within: float) -> list[str]:
    """Wait until no files are coming any more; return what was said, and close the fetch."""
    async with asyncio.timeout(within):
        while fetch.fetching:
            await woken.wait()
            woken.clear()
    said = [one.text for one in fetch.events() if isinstance(one, Notice)]
    await fetch.close()
    return said
