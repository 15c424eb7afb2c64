"""Reads a line that a person types at the terminal."""

from __future__ import annotations

import asyncio
import sys


async def read_line() -> str:
    """Return the next line with its end, "" after Ctrl-D; a cancellation ends the wait."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)  # input() in a thread would outlast a Ctrl-C
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
