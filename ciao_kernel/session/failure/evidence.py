"""Evidence of a failed job: everything that its error and its hint are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ciao_kernel.model import Job, Replica, Status


@dataclass(frozen=True)
class Failure:
    """A failed job, with what the notebook has that it may have missed."""

    job: Job
    status: Status
    """The status by which it failed."""
    tails: Mapping[Replica, bytes]
    """End of each replica's log."""
    folder: Path
    """The user's working folder, to find files that the job missed."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """The notebook's variables, to find those that the job missed."""
    after_kill: Callable[[Replica], str] = lambda _: ""
    """Returns what a replica that was killed for its memory needs, "" if unknown."""
    registry: str = ""
    """The setting: where images that ciao makes are pushed; "" if it names none."""
