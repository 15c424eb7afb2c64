"""States of progress bars in the output of a replica: those that replica_progress.py reads."""

from __future__ import annotations

import re

ENDS = re.compile(rb"[\r\n]")
"""Ends of a line, or of a state of a bar that writes over itself."""
LONGEST = 400
"""Maximum length of a state that is read."""
_SKIPPED = 4
"""Bars of which the newest state is kept while a replica is not read."""
_OF_MANY = re.compile(rb"\d[ \t]{0,2}/[ \t]{0,2}(\d{1,15})")
_STEP = re.compile(rb"step|iter|batch|update|\dit ", re.I)


class SkippedStates:
    """Newest states of bars that were not read, at most one for each total."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}

    def add(self, state: bytes) -> None:
        """Keep a state instead of earlier ones of its bar."""
        self._known.pop(_total(state), None)
        self._known[_total(state)] = state
        if len(self._known) > _SKIPPED:
            del self._known[next(iter(self._known))]

    def take(self, states: list[bytes]) -> list[bytes]:
        """Return all that are kept, except for those of the bars of newer states; keep none."""
        known, self._known = self._known, {}
        for state in states:
            known.pop(_total(state), None)
        return list(known.values())

    def __bool__(self) -> bool:
        return bool(self._known)


def newest_states(line: bytes) -> list[bytes]:
    """Return the last states of a bar in a line that it writes over, the newest last."""
    if not _OF_MANY.search(line):
        return []
    return list(filter(_OF_MANY.search, ENDS.split(line[-4 * LONGEST :])))[-2:]


def newest_step(line: bytes) -> list[bytes]:
    """Return a line that may name a step without a total: ``step 17 loss 0.5``; else nothing.

    Args:
        line: A whole line; an unfinished one may end in half a number.
    """
    newest = ENDS.split(line.rstrip(b"\r")[-LONGEST:])[-1]
    return [newest] if _STEP.search(newest) else []


def _total(state: bytes) -> bytes:
    match = _OF_MANY.search(state)
    return match[1] if match else b""
