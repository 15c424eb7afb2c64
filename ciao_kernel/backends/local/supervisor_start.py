"""Starts a local job's supervisor, lets it begin, and waits until the replicas are started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from ciao_kernel.backends.local import processes
from ciao_kernel.backends.local.record import BEGIN, Folder
from ciao_kernel.errors import BackendError

_ROOT = str(Path(__file__).parents[3])
_START_TIMEOUT, _FOR_EACH = 30.0, 1.0
"""Seconds within which the replicas must have been started, and more of them for each one: those
that run already take the processors from the supervisor, which starts the others."""

_supervisors: set[subprocess.Popen[bytes]] = set()
"""Supervisors started by this process, kept so that each one is reaped after its end."""


def start(folder: Folder, mark: str) -> subprocess.Popen[bytes]:
    """Start the supervisor of a job, which waits until :func:`begin` is called.

    Its interpreter starts while the job is prepared. It ends if this process does not call that.

    Args:
        folder: The job's folder.
        mark: The job's ID, by which all its processes are found.
    """
    # A copy: a cell in a subshell may start another one meanwhile.
    _supervisors.difference_update([one for one in _supervisors.copy() if one.poll() is not None])
    # Objects of modules stay: to look for garbage among them takes a tenth of the start.
    bootstrap = (
        f"import gc, sys; gc.disable(); sys.path.append({_ROOT!r}); "
        "from ciao_kernel.backends.local.supervisor import main; gc.enable(); "
        f"main({os.getpid()}, {processes.birth(os.getpid())!r})"
    )
    with folder.open_supervisor_log() as log:
        process = subprocess.Popen(
            # -S: site packages are not needed, and without them the start takes half the time.
            [sys.executable, "-I", "-S", "-c", bootstrap, str(folder.path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd="/",
            # The mark also finds replicas that the supervisor is just starting.
            env={**os.environ, processes.MARK: mark},
            start_new_session=True,
        )
    _supervisors.add(process)
    return process


def begin(supervisor: subprocess.Popen[bytes]) -> None:
    """Let a supervisor read the job's record, which is complete, and start the replicas."""
    assert supervisor.stdin
    # If it has ended, wait_until_running() says why.
    with contextlib.suppress(BrokenPipeError), supervisor.stdin as pipe:
        pipe.write(BEGIN)


async def wait_until_running(
    folder: Folder, supervisor: subprocess.Popen[bytes], replicas: int
) -> None:
    """Wait for the supervisor's first status, written after the start of the replicas.

    Args:
        folder: The job's folder.
        supervisor: The process.
        replicas: Number of replicas.

    Raises:
        BackendError: The supervisor has ended, or does not write a status in time.
    """
    patience = _START_TIMEOUT + _FOR_EACH * replicas
    deadline = time.monotonic() + patience
    while not folder.status_file.exists():
        ended = supervisor.poll() is not None and not folder.status_file.exists()
        if ended or time.monotonic() > deadline:
            why = "it gave no reason" if ended else f"not all replicas started in {patience:.0f} s"
            said = folder.supervisor_said()
            raise BackendError(
                "the job's supervisor did not start: " + (said or [why])[-1],
                "`%ciao doctor` may show the reason.",
            )
        await asyncio.sleep(0.003)
