"""A job whose processes are on this machine, where they can be looked at."""

from __future__ import annotations

from ciao_kernel.backends.local import hosts, processes
from ciao_kernel.backends.local.record import RECORD_ERRORS, Folder
from ciao_kernel.errors import NoSuchJob
from ciao_kernel.model import Replica, State


class RunningJob:
    """A job whose processes can be asked from here.

    Args:
        folder: The job's folder.
        host: This machine.

    Raises:
        UsageError: The job runs on another machine.
        NoSuchJob: Its folder is gone.
    """

    def __init__(self, folder: Folder, host: hosts.Host) -> None:
        try:
            job, status = folder.read_job(), folder.read_status()
        except RECORD_ERRORS:
            raise NoSuchJob(f"the folder of {folder.path.name} is gone.") from None
        hosts.require(host, folder.path.name, status)
        self.id: str = job["id"]
        self.mark = f"{processes.MARK}={self.id}"
        """Variable with its value of all its processes."""
        self.workdir: str = job["workdir"]
        self._states = {one["name"]: one["state"] for one in (status or {}).get("replicas", ())}

    def fault(self, replica: Replica) -> str:
        """Return why nothing is found of a replica that has no process."""
        return State(self._states.get(str(replica), State.PENDING)).sentence
