"""Who holds which port and which GPU: no two jobs of a user get the same.

One small file for all jobs, so that a submit need not read every job there ever was.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

from ciao_kernel.backends.local import views
from ciao_kernel.backends.local.record import Folder, replace
from ciao_kernel.model import State

_SUBMIT_TIME = 120.0
"""Seconds after which a job without a status will never have one: its submit was cut short."""


class Claims:
    """What the jobs of this user hold.

    Args:
        storage: The folder of all that ciao keeps.
    """

    def __init__(self, storage: Path) -> None:
        self._jobs = storage / "jobs"
        self._file = storage / "claims.json"
        self._lock = storage / "claims.lock"

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Keep other submits out from the choice to :meth:`add`; that is a few milliseconds."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _taken(descriptor):
                await asyncio.sleep(0.005)
            yield
        finally:
            os.close(descriptor)

    def ports(self) -> set[int]:
        """The ports that are held."""
        return {port for claim in self._held().values() for port in claim["ports"]}

    def gpus(self) -> dict[str, str]:
        """The GPUs that are held, each with the job that holds it."""
        return {gpu: job for job, claim in self._held().items() for gpu in claim["gpus"]}

    def add(self, job: str, ports: Collection[int], gpus: Collection[str]) -> None:
        """Hold ports and GPUs for a job until its replicas are over, or its folder is gone."""
        claim = {"since": time.time(), "ports": list(ports), "gpus": list(gpus)}
        replace(self._file, {**self._held(), job: claim})

    def _held(self) -> dict[str, Any]:
        try:
            claims = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return {job: claim for job, claim in claims.items() if self._holds(job, claim)}

    def _holds(self, job: str, claim: dict[str, Any]) -> bool:
        folder = Folder(self._jobs / job)
        status = folder.read_status()
        if status is None:
            return folder.path.is_dir() and time.time() - claim["since"] < _SUBMIT_TIME
        runs = any(not State(one["state"]).over for one in status["replicas"])
        return runs and views.supervised(status)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # A file system without locks: two submits in the same moment may then clash.
    return True
