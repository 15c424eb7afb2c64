"""Variables in a Dockerfile's instructions: ``$NAME``, ``${NAME}`` and ``${NAME:-default}``.

https://docs.docker.com/reference/dockerfile/#environment-replacement
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_START = re.compile(r"\\.|\$(?:(\w+)|\{(\w+)(:?[-+?])?)", re.DOTALL)
"""An escaped character; or a variable: its name, or its name in braces and the operator."""
_BRACE = re.compile(r"\$\{|\}")
_DEEPEST = 20
"""Nested defaults: ``${A:-${B:-c}}``."""
_PARTS = ("PLATFORM", "OS", "ARCH", "VARIANT")
_AUTOMATIC = frozenset(f"{side}{part}" for side in ("BUILD", "TARGET") for part in _PARTS)
"""Variables that a builder itself may set."""


Values = Mapping[str, str | None]
"""Values of variables; None is an ARG without a value, which is empty during the build."""


def expanded(text: str, known: Values, depth: int = 0) -> str:
    """Replace variables by their values; a variable whose value is unknown stays as it is.

    Args:
        text: A part of an instruction.
        known: Values that the Dockerfile has set before it.
        depth: Number of defaults around the text.
    """
    found, place, closings = list[str](), 0, _closings(text)
    while match := _START.search(text, place):
        found.append(text[place : match.start()])
        place = match.end()
        name, operator = match[1] or match[2], match[3] or ""
        if name is None:
            found.append(match[0])
            continue
        word, end = "", place
        if match[2]:
            end = closings.get(match.start(), 0)
            if not end or depth == _DEEPEST or (not operator and end != place + 1):
                found.append(match[0])  # not closed, or an operator that changes the value
                continue
            word = text[place : end - 1]
        value = known.get(name)
        there = value is not None and (value != "" or not operator.startswith(":"))
        if operator.endswith("+"):
            new: str | None = expanded(word, known, depth + 1) if there else ""
        elif there:
            new = value
        elif operator.endswith("-"):
            new = expanded(word, known, depth + 1)
        else:
            new = "" if name in known and not operator else None
        found.append(text[match.start() : end] if new is None else new)
        place = end
    return "".join([*found, text[place:]])


def _closings(text: str) -> dict[int, int]:
    """Return where each variable in braces ends, by the place of its ``$``."""
    found, open_ones = dict[int, int](), list[int]()
    for match in _BRACE.finditer(text):
        if match[0] == "${":
            open_ones.append(match.start())
        elif open_ones:
            found[open_ones.pop()] = match.end()
    return found


def unknown(text: str) -> str:
    """Return the first variable that :func:`expanded` could not replace; "" if there is none."""
    return next((name for match in _START.finditer(text) if (name := match[1] or match[2])), "")


def unknown_reason(text: str, known: Values, place: str) -> tuple[str, str]:
    """Return the reason why a variable in the image of a FROM is not replaced, and a hint.

    Args:
        text: The image; :func:`unknown` finds a variable in it.
        known: Values that the Dockerfile has set before it.
        place: Place of the FROM, with which the reason begins.
    """
    name = unknown(text)
    form = re.search(rf"\$\{{{name}\W[^}}]*\}}", text)
    if form and known.get(name) is not None:
        return (
            f"{place}: the image is unknown, because `{form[0]}` is not supported here.",
            "Write the value.",
        )
    return (
        f"{place}: the image is unknown, because {name} has no value.",
        f"Give it one before the first FROM: ARG {name}=value. There are no other build arguments.",
    )


def automatic(name: str) -> bool:
    """Return whether a builder may set a variable that the Dockerfile does not."""
    return name in _AUTOMATIC
