"""The agent of warm replicas as one file: the parts of :mod:`.agent`, one behind the other.

One file is mounted into a pod, read and compiled at once. With a file for each part the source of a
job would be unpacked by a container of its own, and the replica would start later.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

PARTS = (
    "marker_writer",
    "addresses",
    "processes",
    "command_reader",
    "need",
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
_FOLDER = Path(__file__).parent / "agent"
_INSIDE = re.compile(
    r"^from (?:__future__|ciao_kernel\.[\w.]+) import (?:\([^)]*\)|[^\n(]*)\n", re.MULTILINE
)
"""An import of another part, which is in the same file, or of what is once at its top."""


@functools.cache
def text() -> str:
    """Return the program."""
    head = (_FOLDER / "__init__.py").read_text(encoding="utf-8")
    parts = [(_FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in PARTS]
    bodies = (_INSIDE.sub("", part) for part in parts)
    return "\n\n".join([head, "from __future__ import annotations\n", *bodies])
