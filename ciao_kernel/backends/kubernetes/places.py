"""Where this machine's jobs were submitted: they are found without words, wherever they are.

::

    STORAGE/cluster/NAMESPACE/NAME-UID/place.json    which cluster
    STORAGE/cluster/NAMESPACE/NAME-UID/worker-0.log  what was followed here
"""

from __future__ import annotations

import contextlib
import glob
import json
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.model import Job

_UID = 8
"""So much of a uid tells a job from others of its name."""
_MOST = 200
"""Places that are looked at: they are removed once their jobs are gone."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one job was submitted."""

    context: str
    """The kubeconfig's, also where nobody named one; "" in a pod."""
    namespace: str
    folder: Path

    def holds(self, job: Job) -> bool:
        """Whether it is this very job's."""
        return self.folder.name == f"{job.name}-{job.uid[:_UID]}"


class Places:
    """The folders of jobs that ran on clusters.

    Args:
        storage: Where this user's jobs are kept.
    """

    def __init__(self, storage: Path) -> None:
        self._root = storage / "cluster"

    def folder(self, job: Job) -> Path:
        """Where a job's logs are kept. With the uid: a later job of its name is another one."""
        name = f"{job.name}-{job.uid[:_UID]}" if job.uid else job.name
        return self._root / job.place / name

    def remember(self, job: Job, context: str) -> None:
        """Note where a job was submitted. Without a note it is found by its options."""
        folder = self.folder(job)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / "place.json").write_text(json.dumps({"context": context}))

    def forget(self, place: Place) -> None:
        """Remove a note whose job is gone; logs stay."""
        with contextlib.suppress(OSError):
            (place.folder / "place.json").unlink()
            place.folder.rmdir()  # where nothing was followed

    def known(self, name: str = "") -> list[Place]:
        """The places that were noted, of all jobs or of those of a name; the newest first."""
        found: list[tuple[float, Place]] = []
        of = glob.escape(name) if name else "*"
        with contextlib.suppress(OSError, ValueError):
            for file in self._root.glob(f"*/{of}-{'?' * _UID}/place.json"):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    context = str(json.loads(file.read_bytes())["context"])
                    place = Place(context, file.parent.parent.name, file.parent)
                    found.append((file.stat().st_mtime, place))
        newest = sorted(found, key=lambda pair: pair[0], reverse=True)
        return [place for _, place in newest[:_MOST]]
