"""The way back by a fetch: the pod stays until somebody has the files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from ciao_kernel.delivery.output.output_keeper.program_end import (
    TICK,
    end_of_program,
    gives_nothing,
)

_AFTER_CONTACT = 20.0
"""Seconds for which files are kept after a fetch has begun, if it does not go on."""


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
    while not any(os.path.exists(os.path.join(marks, name)) for name in ("taken", "stopped")):
        until = ended + patience
        with contextlib.suppress(OSError):
            at = os.stat(os.path.join(marks, "contact")).st_mtime
            if at >= ended:
                until = at + min(patience, _AFTER_CONTACT)
        if time.time() > until:
            break
        time.sleep(TICK)
