"""Records of the jobs that this machine submitted, so that commands find them without options.

::

    STORAGE/cluster/NAMESPACE/NAME-UID/place.json    the cluster and the kind of the job
    STORAGE/cluster/NAMESPACE/NAME-UID/worker-0.log  the lines that were followed here

The lines stay when their job is gone from the cluster, unless `ciao delete` removed it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel import private_files
from ciao_kernel.model import Job

_UID = 8
"""Characters of a uid that distinguish a job from others of its name."""
_LARGEST = 1 << 16
_MOST = 200
"""Limit of places to search; places are removed when their jobs are gone."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Place of one submitted job."""

    context: str
    """The kubeconfig's context, even if the user named none; "" in a pod."""
    namespace: str
    folder: Path
    resource: str = ""
    """The kind, as written in paths; "" in records of versions that had only the operator's."""

    def holds(self, job: Job) -> bool:
        """Return whether the place belongs to exactly this job."""
        return self.folder.name == f"{job.name}-{job.identity[:_UID]}"


class Submissions:
    """The folders of jobs that ran on clusters.

    Args:
        storage: Folder of this user's jobs.
    """

    def __init__(self, storage: Path) -> None:
        self._root = storage / "cluster"

    def folder(self, job: Job) -> Path:
        """Return the folder of a job's logs. Its uid separates it from later jobs of its name."""
        name = f"{job.name}-{job.identity[:_UID]}" if job.uid else job.name
        return self._root / job.place / name

    def remember(self, job: Job, context: str) -> None:
        """Record the place of a job. Without the record, options are needed to find it."""
        folder = self.folder(job)
        with contextlib.suppress(OSError, private_files.Untrusted):
            private_files.make_folders(folder, self._root.parent)
            part = folder / f".{os.urandom(6).hex()}.part"
            with private_files.create(part) as file:
                file.write(json.dumps({"context": context, "resource": job.resource}).encode())
            part.replace(folder / "place.json")

    def forget(self, place: Submission) -> None:
        """Remove the record of a job that is gone; its logs stay."""
        with contextlib.suppress(OSError):
            (place.folder / "place.json").unlink()
            place.folder.rmdir()  # fails if the folder has logs

    def known(self, name: str = "") -> list[Submission]:
        """Return the recorded places of all jobs, or of jobs with a name; newest first."""
        found: list[tuple[float, Submission]] = []
        of = glob.escape(name) if name else "*"
        with contextlib.suppress(OSError, ValueError):
            for file in self._root.glob(f"*/{of}-{'?' * _UID}/place.json"):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    told = json.loads(private_files.read(file, _LARGEST))
                    context, resource = str(told["context"]), str(told.get("resource") or "")
                    place = Submission(context, file.parent.parent.name, file.parent, resource)
                    found.append((file.stat().st_mtime, place))
        newest = sorted(found, key=lambda pair: pair[0], reverse=True)
        return [place for _, place in newest[:_MOST]]

    def kept(self, name: str, context: str, namespace: str) -> Path | None:
        """Return the folder with the logs of the newest job of a name in a place; None without.

        Args:
            name: Name of the job, which need not exist any more.
            context: The context; a folder without a record may belong to any.
            namespace: The namespace.
        """
        contexts = {place.folder: place.context for place in self.known(name)}
        found: list[tuple[float, Path]] = []
        with contextlib.suppress(OSError, ValueError):
            for folder in self._root.glob(f"*/{glob.escape(name)}-{'?' * _UID}"):
                is_there = contexts.get(folder, context) == context
                if is_there and folder.parent.name == namespace and any(folder.glob("*.log")):
                    found.append((folder.stat().st_mtime, folder))
        return max(found)[1] if found else None
