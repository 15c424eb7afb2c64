"""The zygote of warm replicas as one file: the parts of :mod:`.zygote`, one behind the other."""

from __future__ import annotations

import functools
from pathlib import Path

from ciao_kernel.delivery.joined_modules import joined

PARTS = (
    "process_name",
    "forking",
    "server",
    "marked_lines",
    "rank_sign",
    "learned_names",
    "ending",
    "program",
    "commands",
)
"""The modules of the package, each behind those that it imports."""


@functools.cache
def text() -> str:
    """Return the program."""
    return joined(Path(__file__).parent / "zygote", PARTS)
