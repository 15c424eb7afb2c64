"""Claims of jobs on ports and GPUs: no two jobs of a user share one on the same machine.

All claims are in one small file, so that a submit does not read the records of all jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ciao_kernel import file_lock
from ciao_kernel.backends.local import processes, sweeps
from ciao_kernel.backends.local.hosts import Host
from ciao_kernel.backends.local.record import RECORD_ERRORS, Folder, is_name, read, replace
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.model import State

_SUBMIT_TIME = 120.0
"""Seconds after which a job without a status never gets one: its submit was interrupted."""
_PATIENCE = 30.0
"""Seconds to wait for the lock, which other submits hold for milliseconds."""
_POLL = 0.005
_NONE: Mapping[str, str] = MappingProxyType({})


class Claims:
    """Ports and GPUs held by the jobs of this user.

    Args:
        storage: Storage folder of ciao.
        host: This machine. Claims of other machines are kept, and have no effect here.
    """

    def __init__(self, storage: Path, host: Host) -> None:
        self._jobs = storage / "jobs"
        self._file = storage / "claims.json"
        self._lock = storage / "claims.lock"
        self._host = host

    @contextlib.asynccontextmanager
    async def locked(self, patience: float = _PATIENCE) -> AsyncIterator[None]:
        """Hold the lock from the choice to :meth:`add`, which takes a few milliseconds.

        Raises:
            EnvironmentFault: Another process holds the lock longer than ``patience``.
        """
        try:
            async with asyncio.timeout(patience):
                # On a drive without locks two submits at the same moment may conflict.
                lock = await file_lock.wait(self._lock, _POLL, mode=0o600, required=False)
        except TimeoutError:
            raise EnvironmentFault(
                f"another process has locked {self._lock} for {patience:.0f} s.",
                f"`fuser {self._lock}` shows the process. End it if it hangs, then try again.",
            ) from None
        with lock:
            yield

    def ports(self) -> set[int]:
        """Return the ports of this machine that are held."""
        return {port for claim in self._here().values() for port in claim["ports"]}

    def gpus(self, uuids: Mapping[str, str] = _NONE) -> dict[str, str]:
        """Return the GPUs of this machine that are held, each with its job.

        Args:
            uuids: UUIDs of GPUs by the names that this process has for them. They count, and not
                the names, if a claim has UUIDs too: it may have other names.
        """
        return {
            name: job
            for job, claim in self._here().items()
            for gpu in claim["gpus"]
            for name in _names(gpu, claim.get("uuids", {}).get(gpu), uuids)
        }

    def add(
        self,
        job: str,
        ports: Collection[int],
        gpus: Collection[str],
        uuids: Mapping[str, str] = _NONE,
    ) -> None:
        """Hold ports and GPUs for a job until its replicas have ended, or its folder is gone.

        Args:
            job: Name of the job.
            ports: Its ports.
            gpus: Its GPUs, as they are named in its environment.
            uuids: UUIDs of GPUs by name, as far as they are known.
        """
        claim = {
            "since": time.time(),
            "host": self._host.identity,
            "ports": list(ports),
            "gpus": list(gpus),
            "uuids": {gpu: uuids[gpu] for gpu in gpus if gpu in uuids},
        }
        replace(self._file, {**self._held(), job: claim})

    async def kill_orphans(self) -> None:
        """End processes of jobs without a supervisor: they still use ports and GPUs."""
        if marks := [mark for job in self._read() if (mark := self._lost(job))]:
            await sweeps.sweep(*marks)

    def _here(self) -> dict[str, Any]:
        return {job: claim for job, claim in self._held().items() if self._host.has(claim)}

    def _held(self) -> dict[str, Any]:
        return {job: claim for job, claim in self._read().items() if self._holds(job, claim)}

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return {job: claim for job, claim in read(self._file).items() if _is_claim(job, claim)}
        return {}

    def _holds(self, job: str, claim: Mapping[str, Any]) -> bool:
        folder = Folder(self._jobs / job)
        try:
            status = folder.read_status()
            if status is not None:
                if not _runs(status):
                    return False
                # Processes that could not be ended still use the ports and GPUs.
                return self._host.is_supervisor_alive(folder, status) or bool(self._left(job))
        except RECORD_ERRORS:
            pass  # A power cut may leave an empty file: it counts as missing.
        return folder.path.is_dir() and self._submitted(folder, claim) < _SUBMIT_TIME

    def _submitted(self, folder: Folder, claim: Mapping[str, Any]) -> float:
        """Return the seconds since the submit; for another machine, the age of the folder."""
        if self._host.has(claim):
            return time.time() - float(claim["since"])
        try:
            return self._host.age(folder.path)
        except OSError:
            return 0.0

    def _left(self, job: str) -> list[int]:
        mark = self._lost(job)
        return processes.marked(mark) if mark else []

    def _lost(self, job: str) -> str:
        """Return the mark of a job's processes if its local supervisor died before they ended."""
        folder = Folder(self._jobs / job)
        with contextlib.suppress(*RECORD_ERRORS):
            status = folder.read_status()
            runs = status is not None and _runs(status) and self._host.has(status["supervisor"])
            if status is not None and runs and not self._host.is_supervisor_alive(folder, status):
                return str(folder.read_job()["id"])
        return ""


def _names(gpu: str, uuid: str | None, uuids: Mapping[str, str]) -> list[str]:
    """Return the names that a GPU of a claim has in this process."""
    if uuid is None:
        return [gpu]
    found = [name for name, own in uuids.items() if own == uuid]
    return found if gpu in uuids else [gpu, *found]


def _is_claim(job: str, claim: object) -> bool:
    """Return whether an entry of the file is a claim: its name becomes the name of a folder."""
    if not is_name(job) or not isinstance(claim, dict):
        return False
    ports, gpus, since = claim.get("ports"), claim.get("gpus"), claim.get("since")
    uuids = claim.get("uuids", {})  # older claims have none
    return (
        isinstance(since, int | float)
        and isinstance(claim.get("host", ""), str)
        and isinstance(ports, list)
        and isinstance(gpus, list)
        and isinstance(uuids, dict)
        and all(isinstance(uuid, str) for uuid in uuids.values())
        and all(isinstance(port, int) for port in ports)
        and all(isinstance(gpu, str) for gpu in gpus)
    )


def _runs(status: Mapping[str, Any]) -> bool:
    return any(not State(one["state"]).over for one in status["replicas"])
