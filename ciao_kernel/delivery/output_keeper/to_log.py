"""The way back by the log of the container."""

from __future__ import annotations

import importlib
import os
import time

from ciao_kernel.delivery.output_keeper.program_end import end_of_program, gives_nothing


def tell(marks: str, linger: float, limit: int, words: list[str]) -> None:
    """Wait for the program's end, and write the files into the log of this container.

    Args:
        marks: Folder for marks.
        linger: Seconds after that for which the pod stays, so that other replicas can end too.
        limit: Largest number of bytes.
        words: The paths of ``%output``.
    """
    end_of_program()
    if os.path.exists(os.path.join(marks, "stopped")) or gives_nothing(words):
        return
    importlib.import_module("ciao_replica_files").write_to_log(words, limit)
    time.sleep(linger)
