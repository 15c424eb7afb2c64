"""The end of the program, which lets the container beside it begin."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Sequence

TICK = 0.1


def gives_nothing(words: Sequence[str]) -> bool:
    """Return whether values alone may come back as files, and the program has written none."""
    files = importlib.import_module("ciao_replica_files")
    place = os.path.join(os.environ.get(files.COPIED, "."), files.VALUES)
    return list(words) == [files.VALUES] and not os.path.isdir(place)


def end_of_program() -> float:
    """Wait for SIGTERM, and return its time: the kubelet sends it when the program has ended."""
    ended: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(time.time()))
    while not ended:
        time.sleep(TICK)
    return ended[0]


def why_none(marks: str, words: Sequence[str]) -> str | None:
    """Wait for the program's end; return why no files are given, None if they are.

    Returns:
        "" if the program has written none, which is no fault.
    """
    end_of_program()
    if os.path.exists(os.path.join(marks, "stopped")):
        return "it was stopped before its program had ended"
    return "" if gives_nothing(words) else None
