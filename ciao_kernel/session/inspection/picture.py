"""Draws where the processes of a job stand, as a short text: a line for each group of them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from ciao_kernel.magics.directives.warm import is_warm
from ciao_kernel.model import Job
from ciao_kernel.model.stacks import Answer, Frame, ProcessStacks, ReplicaStacks, ThreadStack
from ciao_kernel.session.inspection.positions import (
    PROMPT,
    Position,
    Stand,
    merged,
    position,
    stands,
)
from ciao_kernel.visible_text import short, visible

_NAMED = 4
"""Processes that a line names; the others are counted."""
_CODE = 60
_PACKAGES = ("/site-packages/", "/dist-packages/", "/lib/python3.")
_RUN = re.compile(r"^.*?/run-\d+/")
_CELL = "ciao_cell.py"
"""The program of a run in warm replicas, below the folder of the run."""


def text(
    job: Job, replicas: Sequence[ReplicaStacks], *, whole: bool = False, now: float | None = None
) -> str:
    """Return the picture of a job.

    Args:
        job: The job.
        replicas: Its replicas.
        whole: Also return the whole stack of each group, with all threads.
        now: Seconds since the epoch.
    """
    found = stands(replicas)
    groups = merged(found)
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    rows: list[tuple[str, str, str] | str] = []
    for group in groups:
        rows += _rows(group, job)
        if whole and (process := group[0].process):
            rows += _whole(process)
    cells = [row for row in rows if not isinstance(row, str)]
    widths = [max((len(row[at]) for row in cells), default=0) for at in (0, 1)]
    lines = [f"where the replicas of {job.name} stand at {clock}:"]
    for row in rows:
        if isinstance(row, str):
            lines.append(row)
        else:
            who, where, code = row
            lines.append(f"  {who:{widths[0]}}  {where:{widths[1]}}  {code}".rstrip())
    return "\n".join([*lines, *_remarks(found, groups)])


def _rows(group: Sequence[Stand], job: Job) -> Iterator[tuple[str, str, str]]:
    names = [one.name for one in group]
    who = ", ".join(names[:_NAMED])
    who += f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    first = group[0]
    if not first.threads:
        yield who, visible(first.fault), ""
        return
    in_c = [one.process is not None and one.process.answer is Answer.C for one in group]
    for thread in first.threads:
        where = _where(found := position(thread), thread, job)
        if thread.main and any(in_c) and found.call != PROMPT:
            where += " (in C)" if all(in_c) else " (some in C)"
        code = next((frame.text for frame in thread.frames if frame.own), "")
        label = who if thread.main else f"  thread {short(visible(thread.name), 24) or '?'}"
        yield label, where, short(visible(code), _CODE)


def _where(found: Position, thread: ThreadStack, job: Job) -> str:
    if not found.lines:
        if not thread.frames:
            return "in no Python code"
        if found.call == PROMPT:
            return f"at {PROMPT}"
        frame = thread.frames[0]
        return f"in {visible(frame.function)} of {_place(frame)}"
    file, line, function = found.lines[0]
    where = line_of(Frame(file, line, function), job)
    return where + (f" → {visible(found.call)}" if found.call else "")


def line_of(frame: Frame, job: Job) -> str:
    """Return the name of a line of the program: ``line 25 in average``."""
    where = f"line {frame.line}"
    file, program = frame.file, job.program
    if is_warm(job.header):
        file, program = _RUN.sub("", file), _CELL  # each run has a folder of its own
    if file != program and frame.file != job.program:
        where += f" of {visible(file.removeprefix(job.workdir + '/'))}"
    if frame.function != "<module>":
        where += f" in {visible(frame.function)}"
    return where


def file_of(frame: Frame) -> str:
    """Return the path of a file without the folder of its packages."""
    return _place(frame).rpartition(":")[0]


def _place(frame: Frame) -> str:
    path = frame.file
    for folder in _PACKAGES:
        _, found, rest = path.rpartition(folder)
        if found:
            # The rest of the standard library's folder is the number of the version.
            path = rest if folder.endswith("/") else rest.partition("/")[2] or path
    return f"{visible(path)}:{frame.line}"


def _whole(process: ProcessStacks) -> Iterator[str]:
    for thread in process.threads:
        name = f"thread {visible(thread.name)}" if thread.name else "main thread"
        yield f"      {name}:"
        for frame in thread.frames:
            yield f"        {_place(frame)} {visible(frame.function)}"


def _remarks(found: Sequence[Stand], groups: Sequence[Sequence[Stand]]) -> Iterator[str]:
    running = [group for group in groups if group[0].threads and not group[0].child]
    alone = [
        group[0].name
        for group in running
        if len(group) == 1 and position(group[0].threads[0]).lines
    ]
    if len(running) == 2 and len(alone) == 1:
        yield f"{alone[0]} stands elsewhere than all others."
    yield from handler_hint(found)


def handler_hint(found: Sequence[Stand]) -> Iterator[str]:
    """Yield why no process of a job has a handler, if that is so."""
    if (
        found
        and all(one.process is None and not one.threads for one in found)
        and all("handler" in one.fault for one in found)
    ):
        yield (
            "A job has no handler with %inspect=off, with python -E, -I or -S, with a Python older "
            "than 3.8, or where neither Python nor the C library can make a file in memory "
            "(memfd_create)."
        )
