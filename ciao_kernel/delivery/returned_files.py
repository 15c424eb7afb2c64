"""The files that came back from the replicas of a job (``%output``), in the job's folder here.

A file has the path that it had beside the program, so that ``_job.folder / "model/net.pt"`` is the
same on this machine and on a cluster. Replicas on a cluster have a folder each: where several have
different files of one path, each file goes into a folder with the name of its replica.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciao_kernel import private_files
from ciao_kernel.delivery.replica_files import OWN
from ciao_kernel.delivery.transfers import Listing
from ciao_kernel.model import Replica

_RECORD = "returned.json"
_TAKEN = re.compile(r"[a-z]+-\d+(\.earlier|\.try-\d+)?\.(log|part)|\.followed")
"""Names of the logs in that folder."""


@dataclass(frozen=True, slots=True)
class ReturnedFile:
    """One file that came back."""

    at: str
    """Path in the job's folder."""
    size: int
    replicas: tuple[str, ...]
    """The replicas that had it."""


class ReturnedFiles:
    """Takes the files of one job, and knows those that came before.

    Args:
        folder: The job's folder on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._record: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((folder / OWN / _RECORD).read_text(encoding="utf-8"))
            self._record = found if isinstance(found, dict) else {}

    @property
    def known(self) -> bool:
        """Return whether the files of some replica were fetched."""
        return bool(self._record)

    def receiver(self, replica: Replica) -> _Receiver:
        """Return what takes the files of a replica."""
        return _Receiver(self, str(replica))

    def note(self, replica: Replica, listing: Listing) -> None:
        """Record that all files of a replica are here.

        Args:
            replica: The replica.
            listing: What it had.
        """
        told = self._of(str(replica))
        told["missing"] = list(listing.missing)
        told["left_out"] = list(listing.left_out)
        self._save()

    def files(self) -> list[ReturnedFile]:
        """Return all files, by their paths."""
        found: dict[str, tuple[int, list[str]]] = {}
        for replica, path in self._all():
            one = self._of(replica)["files"][path]
            found.setdefault(one["at"], (one["size"], []))[1].append(replica)
        return [ReturnedFile(at, size, tuple(who)) for at, (size, who) in sorted(found.items())]

    def missing(self) -> tuple[str, ...]:
        """Return the words that named nothing in any replica."""
        lists = [one.get("missing") for one in self._record.values() if "missing" in one]
        words = lists[0] if lists else []
        return tuple(word for word in words if all(word in one for one in lists))

    def left_out(self) -> tuple[str, ...]:
        """Return links and others that did not come back."""
        return tuple(
            f"{path} ({replica})"
            for replica, one in self._record.items()
            for path in one.get("left_out", ())
        )

    # ------------------------------------------------------------------------------ parts

    def new_part(self) -> Path:
        """Return a path for a file that is not whole yet."""
        folder = self._folder / OWN / "incoming"
        private_files.make_folders(folder, self._folder)
        return folder / f"{secrets.token_hex(8)}.part"

    def place(self, replica: str, path: str, part: Path, digest: str) -> None:
        """Give a file of a replica its name, and move others that had the same name."""
        own = self._of(replica)["files"]
        others = {one: self._of(one)["files"][path] for one, known in self._all() if known == path}
        others.pop(replica, None)
        size = part.stat().st_size
        equal = next((one for one in others.values() if one["sha256"] == digest), None)
        apart = bool(others) or _TAKEN.fullmatch(path) is not None
        at = equal["at"] if equal else f"{replica}/{path}" if apart else path
        if not equal:
            for one, about in others.items():
                if about["at"] == path:
                    self._move(path, one, others)
        place = self._folder / at
        private_files.make_folders(place.parent, self._folder)
        part.replace(place)
        own[path] = {"at": at, "size": size, "sha256": digest}
        self._save()

    def _move(self, path: str, replica: str, others: Mapping[str, dict[str, Any]]) -> None:
        to = f"{replica}/{path}"
        place = self._folder / to
        private_files.make_folders(place.parent, self._folder)
        with contextlib.suppress(FileNotFoundError):  # the user has removed it
            (self._folder / path).replace(place)
        for about in others.values():
            if about["at"] == path:
                about["at"] = to

    def _all(self) -> Iterator[tuple[str, str]]:
        for replica, one in self._record.items():
            for path in one["files"]:
                yield replica, path

    def _of(self, replica: str) -> dict[str, Any]:
        found: dict[str, Any] = self._record.setdefault(replica, {"files": {}})
        return found

    def _save(self) -> None:
        folder = self._folder / OWN
        private_files.make_folders(folder, self._folder)
        part = folder / f"{_RECORD}.part"
        part.write_text(json.dumps(self._record), encoding="utf-8")
        part.replace(folder / _RECORD)


class _Receiver:
    """Takes the files of one replica."""

    def __init__(self, files: ReturnedFiles, replica: str) -> None:
        self._files, self._replica = files, replica

    def part(self) -> Path:
        """Return the path for a file that is not whole yet."""
        return self._files.new_part()

    def place(self, path: str, part: Path, digest: str) -> None:
        """Give a whole file its name."""
        self._files.place(self._replica, path, part, digest)
