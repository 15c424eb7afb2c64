"""The way back by the log of the container."""

from __future__ import annotations

import importlib
import time

from ciao_kernel.delivery.output.output_keeper.program_end import why_none


def tell(marks: str, linger: float, limit: int, words: list[str]) -> None:
    """Wait for the program's end, and write the files into the log of this container.

    Args:
        marks: Folder for marks.
        linger: Seconds after that for which the pod stays, so that other replicas can end too.
        limit: Largest number of bytes.
        words: The paths of ``%output``.
    """
    if why_none(marks, words) is not None:
        return
    importlib.import_module("ciao_replica_files").write_to_log(words, limit)
    time.sleep(linger)
