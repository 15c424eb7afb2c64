"""The way back by a fetch: the pod stays until somebody has the files."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Sequence

from ciao_kernel.delivery.output.output_keeper.program_end import (
    TICK,
    end_of_program,
    gives_nothing,
)

_AFTER_CONTACT = 20.0
"""Seconds for which files are kept at least after the last contact with a fetch."""
_AFTER_CUT = 30.0
"""Seconds for which they are kept for a fetch that was cut when another one has them: longer than
its first pauses together (:mod:`ciao_kernel.delivery.fetch`), for the job ends that much later."""


def keep(marks: str, patience: float, words: Sequence[str] = ()) -> None:
    """Wait for the program's end, and then until the files are fetched.

    Args:
        marks: Folder for marks.
        patience: Seconds to wait for somebody who fetches them.
        words: The paths, if values alone may come back.
    """
    ended = end_of_program()
    if words and gives_nothing(words):
        return
    while not is_over(marks, awaited_since(time.time(), patience)):
        contact = 0.0
        with contextlib.suppress(OSError):
            contact = os.stat(os.path.join(marks, "contact")).st_mtime
        if time.time() > kept_until(ended, patience, contact):
            break
        time.sleep(TICK)


def is_over(marks: str, since: float) -> bool:
    """Return whether nobody needs the files any more: several may fetch them at the same time.

    Args:
        marks: Folder for marks.
        since: Time after which a fetch must have been heard of, if it does not have them: its
            connection may be cut.
    """
    if os.path.exists(os.path.join(marks, "stopped")):
        return True
    files = importlib.import_module("ciao_replica_files")
    taken = os.path.exists(os.path.join(marks, "taken"))
    return taken and not files.is_read(marks) and not files.is_awaited(marks, since)


def awaited_since(now: float, patience: float) -> float:
    """Return since when a fetch must have been heard of, if it is to come back.

    Args:
        now: The time.
        patience: Seconds to wait for somebody who fetches the files.
    """
    return now - min(patience, _AFTER_CUT)


def kept_until(ended: float, patience: float, contact: float) -> float:
    """Return the time until which files are kept: a fetch that was cut may begin again meanwhile.

    Args:
        ended: Time of the program's end.
        patience: Seconds to wait for somebody who fetches them.
        contact: Time of the last contact with a fetch; 0 if there was none.
    """
    return max(ended + patience, contact + min(patience, _AFTER_CONTACT))
