"""The way back by a registry."""

from __future__ import annotations

import importlib
import time

from ciao_kernel.delivery.output.output_keeper.program_end import why_none


def push(marks: str, pause: float, linger: float, limit: int, words: list[str]) -> str:
    """Wait for the program's end, and push the files to a registry; return why that failed.

    The arguments are those of :func:`.to_bucket.send`.
    """
    registry = importlib.import_module("ciao_registry_push")
    if (none := why_none(marks, words)) is not None:
        return none
    fault: str = registry.push(marks, pause, limit, words)
    if not fault:
        time.sleep(linger)
    return fault
