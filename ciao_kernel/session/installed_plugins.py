"""The plug-ins of installed packages: their entry points, read once for each installation.

Reading them takes about 10 ms with a few hundred packages, and a cell asks for a plug-in several
times before its first line.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path

_GROUPS = "ciao."
_KINDS = ("frameworks", "builders", "backends")
_SETTLED = 2.0
"""Seconds after which a change of a folder is complete: pip first creates the folder of a package's
metadata, and then writes the entry points into it."""

_Stamp = tuple[tuple[str, int], ...]


class InstalledPlugins:
    """Entry points of the groups ``ciao.frameworks``, ``ciao.builders`` and ``ciao.backends``.

    Args:
        read: Returns all entry points by kind and name; replaced in tests.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, Mapping[str, EntryPoint]]] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._read = read or _read
        self._now = now
        self._stamp: _Stamp | None = None
        self._found: Mapping[str, Mapping[str, EntryPoint]] = {}

    def of(self, kind: str) -> Mapping[str, EntryPoint]:
        """Return the entry points of a kind by name, also those of a package installed just now."""
        return self.all().get(kind, {})

    def all(self) -> Mapping[str, Mapping[str, EntryPoint]]:
        """Return the entry points of all kinds, as :meth:`of` does."""
        stamp = _folders()
        if stamp != self._stamp:
            self._found = self._read()
            newest = max((changed for _, changed in stamp), default=0)
            self._stamp = stamp if newest < (self._now() - _SETTLED) * 1e9 else None
        return self._found


def _folders() -> _Stamp:
    """Return the folders of the import path, each with the time of its last change.

    The working folder counts as unchanged: jobs and notebooks write into it, and an installation
    changes another folder too.
    """
    here = ""
    with contextlib.suppress(OSError):  # it may be gone
        here = str(Path.cwd())
    return tuple((one, 0 if one in ("", here) else _changed(one)) for one in sys.path)


def _changed(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except (OSError, TypeError, ValueError):  # the path may name what does not exist, or is no path
        return 0


def _read() -> dict[str, dict[str, EntryPoint]]:
    texts = (one.read_text("entry_points.txt") for one in distributions())
    if not any(text and _GROUPS in text for text in texts):
        return {}  # parsing those of all packages takes four times as long
    return {
        kind: {point.name: point for point in entry_points(group=f"{_GROUPS}{kind}")}
        for kind in _KINDS
    }
