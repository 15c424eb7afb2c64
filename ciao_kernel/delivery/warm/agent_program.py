"""The agent of warm replicas as one file: the parts of :mod:`.agent`, one behind the other.

One file is mounted into a pod, read and compiled at once. With a file for each part the source of a
job would be unpacked by a container of its own, and the replica would start later.
"""

from __future__ import annotations

import functools
from pathlib import Path

from ciao_kernel.delivery.joined_modules import joined

PARTS = (
    "marker_writer",
    "addresses",
    "processes",
    "command_reader",
    "need",
    "interpreter_variables",
    "run",
    "run_folder",
    "run_values",
    "file_giver",
    "zygote_channel",
    "zygotes",
    "program_starter",
    "agent",
)
"""The modules of the package, each behind those that it imports."""


@functools.cache
def text() -> str:
    """Return the program."""
    return joined(Path(__file__).parent / "agent", PARTS)
