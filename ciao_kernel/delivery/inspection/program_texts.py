"""The programs for the processes in a pod, each with its parts as one text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
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


def stacks(mark: str, own: str, patience: float) -> str:
    """Return a program that prints the result of :func:`.stack_reader.look` as JSON."""
    return f"{text('stack_reader')}\nprint(json.dumps(look({mark!r}, {own!r}, {patience!r})))\n"


def halt(mark: str, patience: float, rank: str) -> str:
    """Return a program that prints the result of :func:`.stack_reader.halt`, in a pod."""
    return f"{text('stack_reader')}\nprint(halt({mark!r}, '', {patience!r}, {rank!r}))\n"


def samples(mark: str, own: str, seconds: float) -> str:
    """Return a program that prints the result of :func:`.sampler.sample` as JSON."""
    call = f"sample({mark!r}, {own!r}, {seconds!r}, is_read)"
    return f"{text('sampler')}\nprint(json.dumps({call}))\n"


def bridge(mark: str, replica: str, pid: int, folders: Sequence[str], rank: str) -> str:
    """Return a program that is between its standard streams and a process that waits."""
    call = f"connect({mark!r}, {replica!r}, {pid!r}, {list(folders)!r}, {rank!r})"
    return f"{text('debug_bridge')}\ncarry({call})\n"
