"""One replica of a local job in its supervisor: the process and its state.

Standard library only, as in :mod:`.supervisor`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time

from ciao_kernel.backends.local import parentage, processes, program_start
from ciao_kernel.backends.local.record import Folder

TYPE_CHECKING = False  # not from typing, whose import takes a tenth of the start
if TYPE_CHECKING:
    from typing import Any

    from ciao_kernel.backends.local.machine.private_network import Network


_OF_ANOTHER = (
    "TF_CONFIG", "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    # The variable of a setting too: a program would take it for the folder of its job.
    "CIAO_CHECKPOINT",
)  # fmt: skip

_OF_NOTEBOOKS = {
    "TERM": "xterm-color", "CLICOLOR": "1", "CLICOLOR_FORCE": "1", "FORCE_COLOR": "1",
    "PAGER": "cat", "GIT_PAGER": "cat",
}  # fmt: skip
"""What ipykernel sets for the commands of plain cells. Programs would take the log for a terminal:
they write colours, and move the cursor for each state of a progress bar."""
_MARKS = ("CLICOLOR", "GIT_PAGER")
"""Both have such values in a kernel only: a user in a terminal may well want the others."""


class ReplicaProcess:
    """Process and state of one replica.

    Args:
        asked: The replica's entry in ``job.json``.
    """

    def __init__(self, asked: dict[str, Any]) -> None:
        self.name: str = asked["name"]
        self.endless: bool = asked["endless"]
        self.state = "Pending"
        self.exit_code: int | None = None
        self.restarts = 0
        self._last_exit: int | None = None
        self._ended_with: int | None = None
        self._asked = asked
        self.pid: int | None = None
        """ID of the process; None if it was not started."""
        self._since = time.time()
        self._reason = ""

    @property
    def running(self) -> bool:
        """Return whether the process was started and has no exit code yet."""
        return self.pid is not None and self.exit_code is None

    @property
    def waits(self) -> bool:
        """Return whether it has ended and waits for its restart."""
        return self._ended_with is not None and self.state == "Pending"

    def wait_for_restart(self, folder: Folder) -> None:
        """Forget the process, which has ended; the next one appends to the same log."""
        self._ended_with = self.exit_code
        self.pid = self.exit_code = None
        self.to("Pending", "Restarting")
        with contextlib.suppress(OSError, ValueError):  # a full disk stops no restart
            folder.end_line(self.name)

    def to(self, state: str, reason: str = "") -> None:
        """Change the state."""
        self.state, self._reason, self._since = state, reason, time.time()

    def start(self, job: dict[str, Any], folder: Folder, network: Network | None) -> None:
        """Start the process, in its own network or that of this machine.

        Raises:
            OSError: It cannot be started.
        """
        environment = {**inherited(os.environ), **self._asked["env"], processes.MARK: job["id"]}
        parentage.load()
        parent = os.getpid()

        def prepare() -> None:
            if network:
                try:
                    network.enter()
                except Exception:  # never run it outside
                    text = "the job's network cannot be entered"
                    raise OSError(errno.EPERM, text, self.name) from None
            parentage.end_with_parent(parent)

        # Append mode: torchrun's children share the file, and each write goes to its end.
        with folder.open_log(self.name) as output:
            command, workdir = self._asked["command"], job["workdir"]
            self.pid = program_start.start(command, workdir, environment, output.fileno(), prepare)
        if self._ended_with is not None:  # a restart counts when it is made
            self._last_exit, self._ended_with = self._ended_with, None
            self.restarts += 1
        self.to("Running")

    def ended(self) -> bool:
        """Return whether the process has ended since the last call, and keep its exit code."""
        if self.pid is None or not self.running:
            return False
        self.exit_code = program_start.exit_code(self.pid)
        return self.exit_code is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group if the process runs."""
        if self.pid is not None and self.running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def record(self) -> dict[str, Any]:
        """Return the replica's entry in ``status.json``."""
        return {
            "name": self.name,
            "state": self.state,
            "since": self._since,
            "exit_code": self.exit_code,
            "reason": self._reason,
            "pid": self.pid,
            "restarts": self.restarts,
            "last_exit": self._last_exit,
        }


def inherited(environment: os._Environ[str]) -> dict[str, str]:
    """Return the environment for a replica, without variables of a kernel or another job."""
    kept = {k: v for k, v in environment.items() if not k.startswith(("JPY_", "PYDEVD_", "PET_"))}
    if "inline" in kept.get("MPLBACKEND", ""):
        del kept["MPLBACKEND"]  # ipykernel's backend: its plots need a notebook
    if all(kept.get(name) == _OF_NOTEBOOKS[name] for name in _MARKS):
        kept = {k: v for k, v in kept.items() if v != _OF_NOTEBOOKS.get(k)}
    for name in _OF_ANOTHER:
        kept.pop(name, None)
    return kept
