"""Networks of local jobs as other modules see them: the setting, its check, the way into one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ciao_kernel.backends.local import processes
from ciao_kernel.backends.local.machine import private_network
from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault

_ROOT = str(Path(__file__).parents[4])


def is_isolated(settings: Settings) -> bool:
    """Return whether each local job gets a network of its own (localNetwork=isolated)."""
    return settings.local_network == "isolated"


async def check(python: str = sys.executable) -> None:
    """Create such a network for a moment, in a process of its own because this one has threads.

    Args:
        python: Interpreter of that process; replaced in tests.

    Raises:
        EnvironmentFault: It cannot be created; the message has the reason.
    """
    probe = (
        f"import sys; sys.path.append({_ROOT!r}); "
        "from ciao_kernel.backends.local.machine.private_network import main; main()"
    )
    process = await asyncio.create_subprocess_exec(
        *(python, "-I", "-S", "-c", probe),
        cwd="/",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        reason = (said.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise EnvironmentFault(
            f"this machine does not let jobs have a network of their own: {reason}.",
            "An administrator can allow user namespaces; `%ciao config localNetwork=host` lets "
            "jobs use the network of this machine.",
        )


def find(job: Mapping[str, Any], status: Mapping[str, Any]) -> private_network.Network | None:
    """Return the network that a job's replicas share; None if it is this machine's.

    It is also None after the end of all replicas: their network ends with them.

    Args:
        job: The job's specification.
        status: Its status, which names the processes.
    """
    if job.get("isolated"):
        living = set(processes.marked(job["id"]))
        for pid in [one["pid"] for one in status["replicas"] if one["pid"] in living]:
            with contextlib.suppress(OSError):  # It has just ended.
                return private_network.Network.of(pid)
    return None
