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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciao_kernel import file_lock, private_files
from ciao_kernel.delivery.incoming_files import Listing
from ciao_kernel.delivery.output.large_values import LargeValues, is_value
from ciao_kernel.delivery.replica_files import OWN
from ciao_kernel.model import Replica
from ciao_kernel.model.spec import OutputWay

_Version = tuple[int, int, int]
_RECORD, _LOCK = "returned.json", "returned.lock"
_TAKEN = re.compile(r"[a-z]+-\d+(\.earlier|\.try-\d+)?\.(log|part)|\.followed|place\.json")
"""Names of the logs and the record in that folder."""


@dataclass(frozen=True, slots=True)
class ReturnedFile:
    """One file that came back."""

    at: str
    """Path in the job's folder."""
    size: int
    replicas: tuple[str, ...]
    """The replicas that had it."""
    tries: int = 1
    """Number of the job's try that gave it."""


class ReturnedFiles:
    """Takes the files of one job, and knows those that came before.

    Args:
        folder: The job's folder on this machine.
        tries: Number of the job's try (``%retries``): files of earlier ones may be there too.
        values: Returns the folder for the values of a replica, which may come among the files;
            None if the job gives none (:func:`.results.folders`).
    """

    def __init__(
        self, folder: Path, tries: int = 1, values: Callable[[str], Path] | None = None
    ) -> None:
        self._folder, self.tries, self._values = folder, tries, values
        self._record: dict[str, Any] = {}
        self._read_at: _Version | None = None
        self._read()

    @property
    def known(self) -> bool:
        """Return whether the files of some replica were fetched."""
        return bool(self._record)

    def receiver(self, replica: Replica) -> _Receiver:
        """Return what takes the files of a replica."""
        return _Receiver(self, str(replica))

    def note(
        self,
        replica: Replica,
        listing: Listing,
        way: OutputWay = OutputWay.EXEC,
        pod: str = "",
    ) -> None:
        """Record that all files of a replica are here.

        Args:
            replica: The replica.
            listing: What it had.
            way: How they came.
            pod: Uid of its pod, whose files do not change any more; "" if they may.
        """
        with self._changing():
            told = self._of(str(replica))
            told["missing"] = self._of_user(listing.missing)
            told["left_out"] = self._of_user(listing.left_out)
            told["way"], told["try"], told["pod"] = str(way), self.tries, pod
            told["faults"] = {one: listing.faults[one] for one in self._of_user(listing.faults)}
            told["changed"] = self._of_user(listing.changed)
            told.pop("removed", None)
            if self._values is not None:
                LargeValues(self._values(str(replica))).note_faults(listing.faults)

    def _of_user(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that are not those of values."""
        return [one for one in paths if self._values is None or not is_value(one)]

    def note_removed(self, replica: Replica) -> None:
        """Record that the files of a replica are no more where its pod has sent them."""
        with self._changing():
            self._of(str(replica))["removed"] = True

    def leaves_copy(self, replica: Replica, pod: str) -> bool:
        """Return whether what a pod has copied to a claim is all here, and may still be there.

        Files that could not be read have no other copy.
        """
        self._read()
        one = self._record.get(str(replica), {})
        done = one.get("removed") or one.get("faults") or one.get("way") != str(OutputWay.CLAIM)
        return not done and self.has_all(replica, pod)

    def has_all(self, replica: Replica, pod: str) -> bool:
        """Return whether the files of a pod were brought back, and are still here.

        Another kernel of this machine may have brought them.
        """
        self._read()
        one = self._record.get(str(replica), {})
        paths = (self._folder / about["at"] for about in one.get("files", {}).values())
        return one.get("pod") == pod and all(path.exists() for path in paths)

    def has_some(self, replica: Replica) -> bool:
        """Return whether a replica gave its files in this try."""
        return str(replica) in self._told()

    def files(self) -> list[ReturnedFile]:
        """Return all files, by their paths."""
        found: dict[str, tuple[int, list[str], list[int]]] = {}
        for replica, path in self._all():
            one = self._of(replica)["files"][path]
            _, who, tries = found.setdefault(one["at"], (one["size"], [], []))
            who.append(replica)
            tries.append(one.get("try", 1))
        return [
            ReturnedFile(at, size, tuple(sorted(who, key=lambda one: (len(one), one))), max(tries))
            for at, (size, who, tries) in sorted(found.items())
        ]

    def ways(self) -> tuple[OutputWay, ...]:
        """Return how the files came."""
        told = {one.get("way") for one in self._told().values()}
        return tuple(way for way in OutputWay if str(way) in told)

    def of_replicas(self) -> Iterator[tuple[str, str, Path]]:
        """Yield each file's replica, its path beside the program, and its place here."""
        for replica, path in self._all():
            yield replica, path, self._folder / self._of(replica)["files"][path]["at"]

    def missing(self) -> tuple[str, ...]:
        """Return the words that named nothing in any replica."""
        lists = [one["missing"] for one in self._told().values()]
        words = lists[0] if lists else []
        return tuple(word for word in words if all(word in one for one in lists))

    def left_out(self) -> tuple[str, ...]:
        """Return links and others that did not come back."""
        return tuple(
            f"{path} ({replica})"
            for replica, one in self._told().items()
            for path in one.get("left_out", ())
        )

    def faults(self) -> tuple[str, ...]:
        """Return what had vanished or could not be read when it was fetched, and why."""
        return tuple(
            f"{path} ({replica}: {why})"
            for replica, one in self._told().items()
            for path, why in one.get("faults", {}).items()
        )

    def changed(self) -> tuple[str, ...]:
        """Return files that were written while they were fetched."""
        return tuple(
            f"{path} ({replica})"
            for replica, one in self._told().items()
            for path in one.get("changed", ())
        )

    def _told(self) -> dict[str, dict[str, Any]]:
        """Return what replicas of this try had."""
        return {
            replica: one
            for replica, one in self._record.items()
            if "missing" in one and one.get("try", 1) == self.tries
        }

    # ------------------------------------------------------------------------------ parts

    def new_part(self) -> Path:
        """Return a path for a file that is not whole yet."""
        folder = self._folder / OWN / "incoming"
        private_files.make_folders(folder, self._folder)
        return folder / f"{secrets.token_hex(8)}.part"

    def place(self, replica: str, path: str, part: Path, digest: str) -> None:
        """Give a file of a replica its name.

        Files of other replicas with the same path move out of the way, or back if all are equal
        now. A value has its place among the values.
        """
        with self._changing():
            if self._values is not None and is_value(path):
                LargeValues(self._values(replica)).put(path, part, digest)
            else:
                self._place(replica, path, part, digest)

    def _place(self, replica: str, path: str, part: Path, digest: str) -> None:
        own = self._of(replica)["files"]
        before = own.get(path)
        size = part.stat().st_size
        own[path] = {"at": "", "size": size, "sha256": digest, "try": self.tries}
        holders = {one: self._of(one)["files"][path] for one, known in self._all() if known == path}
        present = (about for about in holders.values() if about["at"])
        places = {about["sha256"]: self._folder / about["at"] for about in present}
        if before and self._folder / before["at"] not in places.values():
            (self._folder / before["at"]).unlink(missing_ok=True)
        if digest in places:
            places[digest].unlink(missing_ok=True)
        places[digest] = part
        apart = len(places) > 1 or _TAKEN.fullmatch(path) is not None
        targets: dict[str, str] = {}
        for one, about in holders.items():
            about["at"] = targets.setdefault(about["sha256"], f"{one}/{path}" if apart else path)
        self._move({places[one]: self._folder / at for one, at in targets.items()})

    def _move(self, moves: Mapping[Path, Path]) -> None:
        """Move files, also to where another of them is."""
        waiting = []
        for source, target in moves.items():
            if source == target:
                continue
            part = self.new_part()
            with contextlib.suppress(FileNotFoundError):  # the user has removed it
                source.replace(part)
                waiting.append((part, target))
        for part, target in waiting:
            private_files.make_folders(target.parent, self._folder)
            part.replace(target)

    def _all(self) -> Iterator[tuple[str, str]]:
        for replica, one in self._record.items():
            for path in one["files"]:
                yield replica, path

    def _of(self, replica: str) -> dict[str, Any]:
        found: dict[str, Any] = self._record.setdefault(replica, {"files": {}})
        return found

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the record, and files, alone: another kernel may follow the same job here."""
        folder = self._folder / OWN
        private_files.make_folders(folder, self._folder)
        with file_lock.block(folder / _LOCK, required=False):
            self._read()
            yield
            part = folder / f"{_RECORD}.part"
            part.write_text(json.dumps(self._record), encoding="utf-8")
            part.replace(folder / _RECORD)
            self._read_at = _version(folder / _RECORD)

    def _read(self) -> None:
        """Read the record, unless it is as it was when it was read or written here."""
        path = self._folder / OWN / _RECORD
        with contextlib.suppress(OSError, ValueError):
            if (version := _version(path)) == self._read_at:
                return
            found = json.loads(path.read_text(encoding="utf-8"))
            self._record, self._read_at = found if isinstance(found, dict) else {}, version


def _version(path: Path) -> _Version:
    """Return what tells a written file from an earlier one."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


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
