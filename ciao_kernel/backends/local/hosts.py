"""Tells machines apart that share one storage, and checks supervisors on all of them.

With a home on a file server, or a volume in two containers, each machine sees the folders of the
others, but not their processes. A process id is valid only on its own machine. On other machines, a
supervisor counts as alive while it touches its status file (the heartbeat).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ciao_kernel import private_files
from ciao_kernel.backends.local import processes
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.errors import UsageError

FRESH = 90.0
"""Seconds that a heartbeat is valid. A heartbeat comes at least every 15 seconds, and a client of a
file server may cache file times for 60."""


class Host:
    """This machine, among those that share a storage.

    Args:
        storage: Storage folder of ciao.
        identity: Replaces the real identity, for tests with two machines.
        fresh: Seconds that a heartbeat of another machine is valid.
    """

    def __init__(self, storage: Path, identity: str = "", fresh: float = FRESH) -> None:
        self.identity = identity or _identity()
        self.fresh = fresh
        self._clock = storage / "clock"

    def has(self, record: Mapping[str, Any]) -> bool:
        """Return whether the "host" of a record is this machine; true if the record has none."""
        host = record.get("host")
        return not host or _key(host) == _key(self.identity)

    def may_sleep(self, record: Mapping[str, Any]) -> bool:
        """Return whether the "host" of a record is a machine that may only be silent.

        One with the name of this machine was restarted since then, so it is gone.
        """
        return not self.has(record) and name(record) != name({"host": self.identity})

    def is_supervisor_alive(self, folder: Folder, status: Mapping[str, Any]) -> bool:
        """Return whether the supervisor that wrote a job's status is alive, on any machine."""
        supervisor = status["supervisor"]
        if self.has(supervisor):
            return processes.alive(supervisor["pid"], supervisor["birth"])
        try:
            return not status.get("ended") and self.age(folder.status_file) < self.fresh
        except FileNotFoundError:
            return False
        except OSError:
            return True  # A file server that does not answer does not mean that it is dead.

    def age(self, path: Path) -> float:
        """Return the seconds since a file or folder was touched, by the storage's clock.

        Raises:
            OSError: There is no such file, or it cannot be read.
        """
        # Opened first: a client of a file server then updates its cached times.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe: no wait
        descriptor = os.open(path, flags)
        try:
            touched = os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
        return self.now() - touched

    def now(self) -> float:
        """Return the time by the storage's clock, to compare it with times of files there.

        Clocks of machines differ, so the time is read from a file that is touched now. If that is
        impossible, it is the time of this machine.
        """
        try:
            descriptor = private_files.open_to_append(self._clock)
        except (OSError, private_files.Untrusted):
            return time.time()
        try:
            os.utime(descriptor)
            return os.fstat(descriptor).st_mtime
        except OSError:
            return time.time()
        finally:
            os.close(descriptor)


def require(host: Host, job: str, status: Mapping[str, Any] | None) -> None:
    """Check that the processes of a job are those of this machine.

    Args:
        host: This machine.
        job: Name of the job.
        status: The job's status; None if there is none yet.

    Raises:
        UsageError: They are on another machine.
    """
    if status is not None and not host.has(status["supervisor"]):
        other = name(status["supervisor"])
        raise UsageError(
            f"{job} runs on {other}, and only that machine sees its processes.",
            f"Run the command in a terminal of {other}.",
        )


def name(record: Mapping[str, Any]) -> str:
    """Return the readable name of the "host" of a record."""
    return str(record.get("host") or "").partition(" ")[0]


def _key(host: str) -> str:
    return host.rpartition(" ")[2]


def _identity() -> str:
    """Return this machine's name and, after a space, its unique key.

    The key is the boot id and the namespace of process ids, which each container has for itself.
    The identity is empty where they cannot be read: a name alone is not stable on a laptop.
    """
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{os.uname().nodename} {boot}/{Path('/proc/self/ns/pid').readlink()}"
    return ""
