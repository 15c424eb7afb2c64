"""The plug-ins of installed packages: their entry points, read once for each installation.

Reading them takes about 10 ms with a few hundred packages, and a cell asks for a plug-in several
times before its first line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import Distribution, EntryPoint, distributions
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
        read: Returns all entry points of packages in some folders, by kind and name; replaced in
            tests.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        read: Callable[[list[str]], Mapping[str, Mapping[str, EntryPoint]]] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._read = read or _read
        self._now = now
        self._stamp: _Stamp | None = None
        self._found: Mapping[str, Mapping[str, EntryPoint]] = {}
        self._searched: _Stamp | None = None
        self._links: list[Path] = []

    def of(self, kind: str) -> Mapping[str, EntryPoint]:
        """Return the entry points of a kind by name, also those of a package installed just now."""
        return self.all().get(kind, {})

    def all(self) -> Mapping[str, Mapping[str, EntryPoint]]:
        """Return the entry points of all kinds, as :meth:`of` does."""
        stamp = self._folders()
        if stamp != self._stamp:
            self._found = self._read([folder for folder, _ in stamp])
            self._stamp = stamp if self._is_settled(stamp) else None
        return self._found

    def _folders(self) -> _Stamp:
        """Return the folders of the import path, each with the time of its last change.

        The working folder is left out: plug-ins are read while the user types, and a folder of a
        project that somebody has only opened must not run code. Jobs and notebooks write into it
        too. It counts if the user has installed the project from there, with its metadata in the
        folder.
        """
        here = _about(os.curdir)
        found = [(one, _about(one)) for one in sys.path if one]
        every = tuple((one, about.st_mtime_ns if about else 0) for one, about in found)
        own = [one for one, about in found if _is_same(about, here)]
        others = tuple(one for one in every if one[0] not in own)
        return every if own and self._is_linked(here, others) else others

    def _is_linked(self, project: os.stat_result | None, folders: _Stamp) -> bool:
        """Return whether a project is installed by a link, as by ``setup.py develop``.

        A search in folders of many packages takes longer than all else here, and is made again only
        when one has changed. The few links are read each time: they may be rewritten in place.
        """
        if folders != self._searched:
            self._links = _links([str(folder) for folder, _ in folders])
            self._searched = folders if self._is_settled(folders) else None
        return any(_is_same(_about(_target(link)), project) for link in self._links)

    def _is_settled(self, stamp: _Stamp) -> bool:
        newest = max((changed for _, changed in stamp), default=0)
        return newest < (self._now() - _SETTLED) * 1e9


def _links(folders: list[str]) -> list[Path]:
    """Return the links to projects in folders of the import path that have installed packages."""
    packages = (Path(one) for one in folders if one.rstrip("/").endswith("-packages"))
    return [link for folder in packages for link in folder.glob("*.egg-link")]


def _target(link: Path) -> str:
    """Return the folder that a link names in its first line; none if it cannot be read."""
    try:
        return link.read_text(encoding="utf-8").partition("\n")[0].strip() or str(link)
    except (OSError, ValueError):
        return str(link)


def _is_same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    return bool(one and other and os.path.samestat(one, other))


def _about(folder: str) -> os.stat_result | None:
    try:
        return os.stat(folder)  # noqa: PTH116 - a Path takes twice the time, for each folder
    except (OSError, TypeError, ValueError):  # the path may name what does not exist, or is no path
        return None


def _read(folders: list[str]) -> dict[str, dict[str, EntryPoint]]:
    # Parsing the entry points of all packages takes four times as long.
    plugins = [
        one
        for one in distributions(path=folders)
        if _GROUPS in (one.read_text("entry_points.txt") or "")
    ]
    if not plugins:
        return {}
    points = [point for one in plugins for point in _first(one, folders).entry_points]
    return {
        kind: {point.name: point for point in points if point.group == f"{_GROUPS}{kind}"}
        for kind in _KINDS
    }


def _first(one: Distribution, folders: list[str]) -> Distribution:
    """Return the installation of a package that is imported, if it is installed several times."""
    return next(iter(distributions(name=one.name, path=folders)), one) if one.name else one
