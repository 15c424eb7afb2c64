"""Chooses the places that the files of one path get in the job's folder, before any of them moves.

A place is free if no other path has it, no file is where it needs a folder, and no folder is there.
A file that is at its place stays without such a look, which asks all files that came: a job of many
replicas has a look at each of them whenever one comes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_TAKEN = re.compile(r"[a-z]+-\d+(\.earlier(-\d+)?|\.try-\d+)?\.(log|part)|\.followed|place\.json")
"""Names of the logs and the record in that folder."""


def choose(
    folder: Path, replicas: Mapping[str, Any], path: str, leaving: frozenset[str]
) -> dict[str, str]:
    """Return a place for each different file of one path, by the file's digest.

    It is the path itself if all are equal, else a folder with the name of a replica.

    Args:
        folder: The job's folder on this machine.
        replicas: What is recorded of the replicas.
        path: The path.
        leaving: Places that files of this path have now.
    """
    holders = {
        replica: (known["files"][path]["sha256"], known["files"][path]["at"])
        for replica, known in replicas.items()
        if path in known["files"]
    }
    apart = (
        len({digest for digest, _ in holders.values()}) > 1 or _TAKEN.fullmatch(path) is not None
    )
    found: dict[str, str] = {}
    for replica, (digest, at) in holders.items():
        if digest not in found:
            found[digest] = next(
                place
                for place in _wished(replica, path, apart=apart)
                if place == at
                or not (
                    _is_of_another(replicas, place, path) or _is_blocked(folder, place, leaving)
                )
            )
    return found


def _wished(replica: str, path: str, *, apart: bool) -> Iterator[str]:
    """Yield places for a file, the best first."""
    if not apart:
        yield path
    yield f"{replica}/{path}"
    yield f"{replica}.files/{path}"  # the program has files in a folder with that name
    number = 2
    while True:
        yield f"{replica}.files-{number}/{path}"
        number += 1


def _is_of_another(replicas: Mapping[str, Any], place: str, path: str) -> bool:
    """Return whether a place is recorded for another path.

    That can only be the place itself, or the one in a folder of a replica.
    """
    others = {place, place.partition("/")[2]} - {path}
    return any(
        known["files"].get(other, {}).get("at") == place
        for known in replicas.values()
        for other in others
    )


def _is_blocked(folder: Path, place: str, leaving: frozenset[str]) -> bool:
    """Return whether a file cannot be at a place, because of what is there or above it."""
    if (folder / place).is_dir():
        return True
    while place := place.rpartition("/")[0]:
        if place not in leaving and os.path.lexists(folder / place):
            return not (folder / place).is_dir()
    return False
