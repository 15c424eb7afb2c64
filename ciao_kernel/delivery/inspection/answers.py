"""Reads the answers of :mod:`.stack_reader`. Those of a pod are foreign input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ciao_kernel.model.stacks import Answer, Frame, ProcessStacks, ThreadStack

_LARGEST = 4 * 1024 * 1024
_TEXT = 400


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


def _threads(value: object) -> Iterator[ThreadStack]:
    for one in value if isinstance(value, list) else ():
        if isinstance(one, list) and len(one) == 3 and isinstance(one[2], list):
            yield ThreadStack(_text(one[0]), bool(one[1]), tuple(_frames(one[2])))


def _frames(value: list[Any]) -> Iterator[Frame]:
    for one in value:
        if isinstance(one, list) and len(one) == 5:
            file, line, function, own, text = one
            yield Frame(_text(file), _number(line), _text(function), bool(own), _text(text))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _text(value: object) -> str:
    return value[:_TEXT] if isinstance(value, str) else ""
