"""The way back by a registry."""

from __future__ import annotations

import importlib
import os
import time

from ciao_kernel.delivery.output_keeper.program_end import end_of_program, gives_nothing


def push(marks: str, pause: float, linger: float, limit: int, words: list[str]) -> str:
    """Wait for the program's end, and push the files to a registry; return why that failed.

    The arguments are those of :func:`send`.
    """
    registry = importlib.import_module("ciao_registry_push")
    end_of_program()
    if os.path.exists(os.path.join(marks, "stopped")):
        return "it was stopped before its program had ended"
    if gives_nothing(words):
        return ""
    fault: str = registry.push(marks, pause, limit, words)
    if not fault:
        time.sleep(linger)
    return fault
