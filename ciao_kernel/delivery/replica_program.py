"""The program that finds, sends and takes files in a pod, as one text: :mod:`.replica_files`.

One text is sent to a pod at once, or is one file beside the program.
"""

from __future__ import annotations

import functools
from pathlib import Path

from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.joined_modules import joined

NAME = "ciao_replica_files"
"""Name of the module in a pod."""
PARTS = (
    "messages",
    "marks",
    "finding",
    "opening",
    "on_claim",
    "sender",
    "log_writer",
    "placing",
    "receiver",
    "requests",
)
"""The modules of the package, each behind those that it imports."""


@functools.cache
def text() -> str:
    """Return the program."""
    return joined(Path(replica_files.__file__).parent, PARTS)
