"""The programs for the processes in a pod, each with its parts as one text."""

from __future__ import annotations

import functools
from pathlib import Path

from ciao_kernel.delivery.joined_modules import joined

_STACKS = ("process_state", "handler_access", "stack_texts", "program_lines")
PROGRAMS = {
    "stack_reader": _STACKS,
    "sampler": _STACKS,
    "debug_bridge": ("process_state",),
}
"""The parts of each, each behind those that it imports."""


@functools.cache
def text(program: str) -> str:
    """Return the text of one of :data:`PROGRAMS`, which defines names and does nothing yet."""
    return joined(Path(__file__).parent, (*PROGRAMS[program], program))
