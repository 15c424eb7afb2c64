"""Which machine a job's processes are on, where several machines share one storage.

A home on a file server, or a volume in two containers: all see each other's folders, and none
sees another's processes. What a process id means is known only where it is from; elsewhere a
supervisor counts as alive as long as it touches its status (its heartbeat).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ciao_kernel.backends.local import processes
from ciao_kernel.backends.local.record import Folder

FRESH = 90.0
"""Seconds that a heartbeat counts. It comes at least every 15, and a client of a file server may
answer from memory for 60."""


class Host:
    """This machine, among those that share a storage.

    Args:
        storage: The folder of all that ciao keeps.
        identity: Another than the real one, for a test that plays two machines.
        fresh: Seconds that another machine's heartbeat counts.
    """

    def __init__(self, storage: Path, identity: str = "", fresh: float = FRESH) -> None:
        self.identity = identity or _identity()
        self.fresh = fresh
        self._clock = storage / "clock"

    def has(self, record: Mapping[str, Any]) -> bool:
        """Whether the "host" of a record is this one, as it is where a record names none.

        Only Linux tells machines apart; elsewhere those that share a storage are not.
        """
        host = record.get("host")
        return not host or _key(host) == _key(self.identity)

    def supervises(self, folder: Folder, status: Mapping[str, Any]) -> bool:
        """Whether the supervisor that wrote a job's status still lives, wherever it is."""
        supervisor = status["supervisor"]
        if self.has(supervisor):
            return processes.alive(supervisor["pid"], supervisor["birth"])
        try:
            return not status.get("ended") and self.age(folder.status_file) < self.fresh
        except FileNotFoundError:
            return False
        except OSError:
            return True  # A server that does not answer is no sign of a death.

    def age(self, path: Path) -> float:
        """Seconds since a file or folder of the storage was touched, by the storage's clock.

        Machines' clocks differ, so the time is what a file that is touched now gets.

        Raises:
            OSError: There is no such file, or it cannot be asked.
        """
        # Opened first: a client of a file server then asks for the times anew.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            touched = os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
        return self._now() - touched

    def _now(self) -> float:
        try:
            descriptor = os.open(self._clock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return time.time()
        try:
            os.utime(descriptor)
            return os.fstat(descriptor).st_mtime
        except OSError:
            return time.time()
        finally:
            os.close(descriptor)


def name(record: Mapping[str, Any]) -> str:
    """The name, for people, of the "host" of a record."""
    return str(record.get("host") or "").partition(" ")[0]


def _key(host: str) -> str:
    return host.rpartition(" ")[2]


def _identity() -> str:
    """This machine's name and, after a space, what tells it from all others.

    That is this run of its system and the namespace of its process ids, which a container has for
    itself. Where a system does not tell them nothing does: a laptop's name changes with its place.
    """
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{os.uname().nodename} {boot}/{Path('/proc/self/ns/pid').readlink()}"
    return ""
