"""The files that came back from the replicas of a job (``%output``), in the job's folder here.

A file has the path that it had beside the program, so that ``_job.folder / "model/net.pt"`` is the
same on this machine and on a cluster. Replicas on a cluster have a folder each: where several have
different files of one path, each file goes into a folder with the name of its replica.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciao_kernel import private_files
from ciao_kernel.delivery.incoming_files import Listing, is_asked
from ciao_kernel.delivery.output import returned_places
from ciao_kernel.delivery.output.large_values import LargeValues, is_value
from ciao_kernel.delivery.output.returned_record import ReturnedRecord
from ciao_kernel.delivery.replica_files import OWN
from ciao_kernel.model import Replica
from ciao_kernel.model.outputs import OutputWay


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
    old: bool = False
    """Whether an earlier fetch of that try gave it, and the last one did not."""


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
        self._record = ReturnedRecord(folder)

    @property
    def known(self) -> bool:
        """Return whether the files of some replica were fetched."""
        told = self._record.replicas.values()
        return any(one["files"] or "missing" in one for one in told)

    def expect(self, replicas: Iterable[Replica]) -> None:
        """Give replicas their order before the files of some come at once.

        Where several have one file, and another replica has a different one of that path, it goes
        to the folder of the first.

        Args:
            replicas: The replicas, in that order.
        """
        if new := [str(one) for one in replicas if str(one) not in self._record.replicas]:
            with self._record.changing():
                for one in new:
                    self._record.of(one)

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
        with self._record.changing():
            told = self._record.of(str(replica))
            told["missing"] = self._of_user(listing.missing)
            told["left_out"] = self._of_user(listing.left_out)
            told["way"], told["try"], told["pod"] = str(way), self.tries, pod
            told["faults"] = {one: listing.faults[one] for one in self._of_user(listing.faults)}
            told["changed"] = self._of_user(listing.changed)
            told.pop("removed", None)
            self._note_old(told["files"], listing)
            if self._values is not None:
                LargeValues(self._values(str(replica))).note_faults(listing.faults)

    def _note_old(self, files: Mapping[str, dict[str, Any]], listing: Listing) -> None:
        """Note which files of this try came by an earlier fetch, and are not there any more."""
        for path in files.keys() - listing.came - listing.faults.keys():
            if files[path].get("try", 1) == self.tries and is_asked(path, listing.asked):
                files[path]["old"] = True

    def _of_user(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that are not those of values."""
        return [one for one in paths if self._values is None or not is_value(one)]

    def note_removed(self, replica: Replica) -> None:
        """Record that the files of a replica are no more where its pod has sent them."""
        with self._record.changing():
            self._record.of(str(replica))["removed"] = True

    def leaves_copy(self, replica: Replica, pod: str) -> bool:
        """Return whether what a pod has copied to a claim is all here, and may still be there.

        Files that could not be read have no other copy.
        """
        self._record.read()
        one = self._record.replicas.get(str(replica), {})
        done = one.get("removed") or one.get("faults") or one.get("way") != str(OutputWay.CLAIM)
        return not done and self.has_all(replica, pod)

    def has_all(self, replica: Replica, pod: str) -> bool:
        """Return whether the files of a pod were brought back, and are still here.

        Another kernel of this machine may have brought them.
        """
        self._record.read()
        one = self._record.replicas.get(str(replica), {})
        files = [about for about in one.get("files", {}).values() if not about.get("old")]
        paths = (self._folder / about["at"] for about in files)
        return one.get("pod") == pod and all(path.exists() for path in paths)

    def has_some(self, replica: Replica) -> bool:
        """Return whether a replica gave its files in this try."""
        return str(replica) in self._told()

    def files(self) -> list[ReturnedFile]:
        """Return all files, by their paths."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for replica, path in self._all():
            one = self._record.of(replica)["files"][path]
            found.setdefault(one["at"], {})[replica] = one
        return [_of_place(at, holders) for at, holders in sorted(found.items())]

    def ways(self) -> tuple[OutputWay, ...]:
        """Return how the files came."""
        told = {one.get("way") for one in self._told().values()}
        return tuple(way for way in OutputWay if str(way) in told)

    def of_replicas(self) -> Iterator[tuple[str, str, Path]]:
        """Yield each file's replica, its path beside the program, and its place here."""
        for replica, path in self._all():
            yield replica, path, self._folder / self._record.of(replica)["files"][path]["at"]

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
            for replica, one in self._record.replicas.items()
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
        with self._record.adding():
            if self._values is not None and is_value(path):
                LargeValues(self._values(replica)).put(path, part, digest)
            else:
                self._place(replica, path, part, digest)

    def _place(self, replica: str, path: str, part: Path, digest: str) -> None:
        before = self._record.of(replica)["files"].get(path)
        size = part.stat().st_size
        own = {"at": "", "size": size, "sha256": digest, "try": self.tries}
        self._record.put_file(replica, path, own)
        holders = {
            one: known["files"][path]
            for one, known in self._record.replicas.items()
            if path in known["files"]
        }
        present = {about["sha256"]: about["at"] for about in holders.values() if about["at"]}
        leaving = {*present.values(), *([before["at"]] if before else [])}
        targets = returned_places.choose(
            self._folder, self._record.replicas, path, frozenset(leaving)
        )
        if before and before["at"] not in present.values():
            (self._folder / before["at"]).unlink(missing_ok=True)
        if digest in present:
            (self._folder / present[digest]).unlink(missing_ok=True)
        places = {one: self._folder / at for one, at in present.items()} | {digest: part}
        for one, about in holders.items():
            at = targets[about["sha256"]]
            if at != about["at"]:
                self._record.put_file(one, path, {**about, "at": at})
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
        for replica, one in self._record.replicas.items():
            for path in one["files"]:
                yield replica, path


def _of_place(at: str, holders: Mapping[str, Mapping[str, Any]]) -> ReturnedFile:
    """Return a file by what is known of it from each replica that had it."""
    size = next(iter(holders.values()))["size"]
    last = max(one.get("try", 1) for one in holders.values())
    old = all(one.get("old") for one in holders.values() if one.get("try", 1) == last)
    who = sorted(holders, key=lambda one: (len(one), one))
    return ReturnedFile(at, size, tuple(who), last, old)


class _Receiver:
    """Takes the files of one replica."""

    def __init__(self, files: ReturnedFiles, replica: str) -> None:
        self._files, self._replica = files, replica

    def part(self, path: str) -> Path:
        """Return the path for a file that is not whole yet."""
        return self._files.new_part()

    def place(self, path: str, part: Path, digest: str, mode: int) -> None:
        """Give a whole file its name; it stays this user's alone, whatever its mode was."""
        self._files.place(self._replica, path, part, digest)
