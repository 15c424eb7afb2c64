"""The program that keeps the files of ``%output`` in a pod, as one text: :mod:`.output_keeper`."""

from __future__ import annotations

import functools
from pathlib import Path

from ciao_kernel.delivery.joined_modules import joined

NAME = "ciao_output_keeper"
"""Name of the module in a pod."""
PARTS = (
    "program_end",
    "copies",
    "program_runner",
    "until_fetched",
    "to_log",
    "to_bucket",
    "to_registry",
    "to_claim",
    "warm_run",
    "commands",
)
"""The modules of the package, each behind those that it imports."""


@functools.cache
def text() -> str:
    """Return the program."""
    return joined(Path(__file__).parent / "output_keeper", PARTS)
