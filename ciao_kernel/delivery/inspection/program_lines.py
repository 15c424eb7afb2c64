"""The lines of the program in a stack: those in its own files, with their texts.

A part of programs that run in pods (:mod:`.program_texts`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_CIAOS = (".ciao/", ".ciao-warm/", "ciao_warm_agent.py", "ciao_warm_zygote.py")
"""Files of ciao in the folder of a program; warm replicas run their agent there."""
_LONGEST_FILE = 4 * 1024 * 1024
_lines: dict[str, list[str]] = {}


def folders(own: str, environments: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the folders of the program; warm replicas have another one for their runs."""
    found = [own]
    for one in environments:
        try:
            root = json.loads(one.get("CIAO_WARM", "{}"))["root"]
        except (ValueError, KeyError, TypeError):
            continue
        if root and isinstance(root, str) and root not in found:
            found.append(root)
    return found


def is_own(path: str, own: Sequence[str]) -> bool:
    """Return whether a file is one of the program's, and none of ciao's beside it."""
    return any(
        path.startswith(folder + "/") and not path[len(folder) + 1 :].startswith(_CIAOS)
        for folder in own
    )


def with_text(frame: Any, own: Sequence[str]) -> list[Any]:
    """Return a frame with whether it is the program's, and the text of its line."""
    path, number, name = frame
    if not is_own(path, own):
        return [path, number, name, False, ""]
    if path not in _lines:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                _lines[path] = file.read(_LONGEST_FILE).splitlines()
        except OSError:
            _lines[path] = []
    text = _lines[path][number - 1].strip()[:200] if 0 < number <= len(_lines[path]) else ""
    return [path, number, name, True, text]
