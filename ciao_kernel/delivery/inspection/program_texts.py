"""The programs that ask the processes in a pod, each with its parts as one text."""

from __future__ import annotations

import functools
from pathlib import Path

from ciao_kernel.delivery.joined_modules import joined

PARTS = ("process_state", "handler_access", "stack_texts", "program_lines")
"""What all of them need, each behind those that it imports."""
PROGRAMS = ("stack_reader", "sampler")


@functools.cache
def text(program: str) -> str:
    """Return the text of one of :data:`PROGRAMS`, which defines names and does nothing yet."""
    return joined(Path(__file__).parent, (*PARTS, program))
