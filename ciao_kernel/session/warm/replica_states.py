"""States of warm replicas, as their agents tell them: who is ready, and who is in a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ciao_kernel.delivery.warm.marks import MarkReader
from ciao_kernel.model import Replica
from ciao_kernel.session.warm.run import Run

_NOISE = 1 << 16
"""Bytes kept of what a replica writes outside of runs: the reason if it cannot start."""


class ReplicaStates:
    """The state of each replica of one job.

    Args:
        replicas: All replicas of the job.
        nonce: Distinguishes its markers.
    """

    def __init__(self, replicas: Sequence[Replica], nonce: str) -> None:
        self._readers = {one: MarkReader(nonce) for one in replicas}
        self.ready: dict[Replica, dict[str, Any]] = {}
        """The newest marker of each replica that takes runs."""
        self.noise: dict[Replica, bytes] = {}
        """The end of what each has written outside of runs."""
        self._memory: dict[Replica, int] = {}
        self._inside: dict[Replica, int] = {}

    @property
    def all_ready(self) -> bool:
        """True if all replicas are ready, so that a run can be sent."""
        return len(self.ready) == len(self._readers)

    @property
    def memory(self) -> int:
        """Megabytes that all zygotes hold, after the first run."""
        return sum(self._memory.values())

    @property
    def root(self) -> str:
        """Folder of the runs in the replicas; "" until they are ready."""
        return next((str(one["root"]) for one in self.ready.values()), "")

    def parts(self, replica: Replica, data: bytes) -> Iterator[bytes | dict[str, Any]]:
        """Yield the lines of a replica, and each marker in them as its content."""
        return self._readers[replica].read(data)

    def is_inside(self, replica: Replica, run: Run) -> bool:
        """Return whether the lines of a replica are those of a run."""
        return self._inside.get(replica) == run.number

    def keep_noise(self, replica: Replica, data: bytes) -> None:
        """Keep lines that belong to no run."""
        self.noise[replica] = (self.noise.get(replica, b"") + data)[-_NOISE:]

    def begin(self, replica: Replica, marker: dict[str, Any]) -> None:
        """Note that a run has begun in a replica."""
        self._inside[replica] = marker["id"]

    def end(self, replica: Replica, marker: dict[str, Any]) -> None:
        """Note that a run has ended there, and where the next one listens."""
        self._inside.pop(replica, None)
        self._memory[replica] = int(marker.get("memory", 0))
        self.ready[replica]["port"] = marker["port"]
