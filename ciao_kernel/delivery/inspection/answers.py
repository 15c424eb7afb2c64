"""Reads answers of :mod:`.stack_reader` and :mod:`.sampler`. Those of a pod are foreign input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ciao_kernel.model.stacks import Answer, Frame, ProcessSamples, ProcessStacks, ThreadStack

_LARGEST = 4 * 1024 * 1024
_TEXT = 400
_DEEPEST = 128
_MOST_SAMPLES = 1_000_000


def read(text: bytes) -> list[Mapping[str, Any]]:
    """Return the records that a program printed; none if the text is something else."""
    try:
        found = json.loads(text) if len(text) <= _LARGEST else None
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def process(record: Mapping[str, Any]) -> ProcessStacks:
    """Return the process of a record; what is wrong in it is left out."""
    known = set(Answer)
    answer = record.get("how")
    return ProcessStacks(
        _number(record.get("pid")),
        _number(record.get("parent")),
        Answer(answer) if answer in known else Answer.NONE,
        tuple(_threads(record.get("threads"))),
        _text(record.get("command")),
        _text(record.get("rank")),
        _text(record.get("state")),
    )


def samples(record: Mapping[str, Any]) -> ProcessSamples:
    """Return the samples in a record of :mod:`.sampler`."""
    one = process(record)
    frames = record.get("frames")
    known = tuple(map(_frame, frames)) if isinstance(frames, list) else ()
    stacks = []
    for count, numbers in _counted(record.get("stacks")):
        stack = tuple(known[at] for at in numbers if isinstance(at, int) and 0 <= at < len(known))
        if stack:
            stacks.append((count, stack))
    # The most frequent one that shows the program, by which it is told from its helpers.
    shown = [stack for _, stack in stacks if any(frame.own for frame in stack)]
    shown += [stack for _, stack in stacks]
    threads = (ThreadStack("", True, shown[0]),) if shown else ()
    return ProcessSamples(replace(one, threads=threads), tuple(stacks), _number(record.get("rest")))


def _counted(value: object) -> Iterator[tuple[int, list[Any]]]:
    for one in value if isinstance(value, list) else ():
        if isinstance(one, list) and len(one) == 2 and isinstance(one[1], list):
            count, numbers = _number(one[0]), one[1][:_DEEPEST]
            if 0 < count <= _MOST_SAMPLES:
                yield count, numbers


def _threads(value: object) -> Iterator[ThreadStack]:
    for one in value if isinstance(value, list) else ():
        if isinstance(one, list) and len(one) == 3 and isinstance(one[2], list):
            yield ThreadStack(_text(one[0]), bool(one[1]), tuple(_frames(one[2])))


def _frames(value: list[Any]) -> Iterator[Frame]:
    for one in value:
        if isinstance(one, list) and len(one) == 5:
            yield _frame(one)


def _frame(one: object) -> Frame:
    if not isinstance(one, list) or len(one) != 5:
        return Frame("", 0, "")
    file, line, function, own, text = one
    return Frame(_text(file), _number(line), _text(function), bool(own), _text(text))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _text(value: object) -> str:
    return value[:_TEXT] if isinstance(value, str) else ""
