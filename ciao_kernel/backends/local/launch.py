"""Starts a local job: its folder, its share of the machine, its supervisor.

A start either succeeds or leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ciao_kernel import exhaustion, log, private_files
from ciao_kernel.backends.local import (
    environment,
    executable,
    interpreter,
    processes,
    removal,
    supervisor_start,
    volumes,
)
from ciao_kernel.backends.local.hosts import Host
from ciao_kernel.backends.local.machine import gpus, ports
from ciao_kernel.backends.local.machine.claims import Claims
from ciao_kernel.backends.local.machine.isolation import is_isolated
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.backends.local.replica_plan import (
    ReplicaPlan,
    replica_plans,
    visible_devices,
)
from ciao_kernel.config import Settings
from ciao_kernel.delivery import checkpoints, event_files
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.packages import requirements
from ciao_kernel.errors import BackendError, EnvironmentFault, SpecError
from ciao_kernel.model import Address, Artifact, Notice, Replica, RestartPolicy, naming
from ciao_kernel.plugins import AnyLanguage, Build, Builder, Emit, Plan, endless_roles

_log = logging.getLogger(__name__)

_LOOK = 0.1
"""Seconds between two checks for the end of a stopped job."""


class Launcher:
    """Submits jobs.

    Args:
        settings: Folder of the jobs, and how they are stopped.
        devices: Returns this machine's GPUs.
        host: This machine.
    """

    def __init__(self, settings: Settings, devices: Callable[[], gpus.Devices], host: Host) -> None:
        self._settings = settings
        self._own = settings.own_folder
        self._jobs = self._own.path / "jobs"
        self._devices = devices
        self._claims = Claims(self._own.path, host)
        self._host = host

    def python(self, plan: Plan) -> str:
        """Return the replicas' interpreter.

        Raises:
            SpecError: There is none as the cell names it.
            EnvironmentFault: There is none as the setting names it.
        """
        if isinstance(plan.framework, AnyLanguage):
            return sys.executable  # which nothing starts
        if not plan.spec.python:
            named = self._settings.python
            return interpreter.of_setting(self._settings, plan.folder) if named else sys.executable
        try:
            return interpreter.find(plan.spec.python, plan.folder)
        except EnvironmentFault as error:
            raise SpecError(error.message, error.hint, directive="python") from None

    async def check_gpus(self, plan: Plan) -> None:
        """Raise SpecError if the job asks for more GPUs than are free."""
        if wanted := gpus.wanted(plan.spec):
            devices = await self._present(plan)
            await self._claims.kill_orphans()
            gpus.check(wanted, devices, self._claims.gpus(devices.uuids))

    async def preview(self, plan: Plan) -> tuple[ReplicaPlan, ...]:
        """Return the replicas that a launch at this moment would start; create nothing."""
        name = plan.name or "NAME"
        artifact = Artifact(plan.source, self.python(plan), str(self._jobs / name / "work"))
        addresses = self._addresses(plan)
        shares = self._shares(plan, await self._present(plan))
        return replica_plans(plan, artifact, name, addresses, shares)

    async def launch(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Folder:
        """Create the job's folder and start its supervisor."""
        self._prepare(emit)
        if plan.name and (kept := self._checkpoint(plan, plan.name)):
            await self._wait_until_saved(kept, emit)
        folder = self._claim_name(plan.name, plan.framework.name)
        started: list[subprocess.Popen[bytes]] = []
        try:
            python, base = self.python(plan), ""
            wanted = plan.spec.build
            if wanted.needed:
                await self._clear_leftovers()  # on a full disk, packages need their space
                cache = self._own.prepare("cache", "environments").parent
                asked = requirements.read(wanted, plan.folder)
                days = self._settings.cache_days
                hint = interpreter.remedy(self._settings, plan.spec.python)
                base = python
                python = await environment.prepare(base, asked, cache, emit, days, hint)
                executable.check_beside(plan, python, base)
            name = folder.path.name
            mark = f"{name}-{secrets.token_hex(8)}"
            started.append(supervisor_start.start(folder, mark))
            if not wanted.needed:
                # It looks at the folders of all jobs: the supervisor starts meanwhile.
                await self._clear_leftovers()
            ask = Build(
                plan.source,
                plan.spec,
                python,
                name,
                folder.path,
                plan.folder,
            )
            artifact = await builder.build(ask, emit)
            work, folders = Path(artifact.workdir), self._settings.volumes
            await asyncio.to_thread(volumes.place, plan.spec.all_volumes, work, folders)
            if kept := self._checkpoint(plan, name):
                await asyncio.to_thread(volumes.keep, kept, work, self._own)
            for replica in plan.spec.replicas() if plan.spec.output_names else ():
                results.folder(work, replica).mkdir(parents=True)
            for place in set(results.output_folder(plan.spec, artifact.workdir).values()):
                Path(place).mkdir(exist_ok=True)
            for replica in plan.spec.replicas():
                for place in event_files.variables(plan.spec, artifact.workdir, replica).values():
                    Path(place).mkdir(parents=True, exist_ok=True)
            devices = await self._present(plan)  # Slow, so not under the lock.
            await self._claims.kill_orphans()
            async with self._claims.locked():
                addresses, shares = self._addresses(plan), self._shares(plan, devices)
                replicas = replica_plans(plan, artifact, name, addresses, shares, base)
                taken = [address.port for address in addresses.values()]
                self._claims.add(name, taken, visible_devices(replicas), devices.uuids)
            private_files.make_folder(folder.logs)
            folder.make_reserve()
            folder.write_job(self._record(plan, artifact, name, mark, replicas, outlive))
            supervisor_start.begin(started[0])
            await supervisor_start.wait_until_running(folder, started[0], len(replicas))
        except BaseException as error:
            # The first error has the cause; without open files nothing can be removed either.
            with log.ignored(_log, "rolling a start back", OSError, BackendError):
                await asyncio.shield(asyncio.to_thread(self._roll_back, folder, started))
            if isinstance(error, OSError):
                raise _no_room(error, folder) from error
            if isinstance(error, private_files.Untrusted):
                raise EnvironmentFault(f"the job cannot be started: {error}.") from error
            raise
        return folder

    def _prepare(self, emit: Emit) -> None:
        """Create the folder of jobs; say once where it is if the storage is shared."""
        known = os.path.lexists(self._jobs)  # False, and no error, in a closed folder
        self._own.prepare("jobs")
        if self._own.reason and not known:
            text = f"{self._own.reason}, so your jobs are in a folder of your own: {self._own.path}"
            emit(Notice(text))

    async def _clear_leftovers(self) -> None:
        await asyncio.to_thread(removal.clear_leftovers, self._jobs, self._host)

    def _checkpoint(self, plan: Plan, name: str) -> Path | None:
        return checkpoints.on_this_machine(plan.spec, self._settings, name)

    async def _wait_until_saved(self, kept: Path, emit: Emit) -> None:
        """Wait until stopped jobs have ended that may still save into a folder of checkpoints."""
        told = ""
        while name := await asyncio.to_thread(volumes.keeper, kept, self._jobs, self._host):
            if name != told:
                emit(Notice(f"waiting until the stopped job {name} has ended …"))
            told = name
            await asyncio.sleep(_LOOK)

    def _claim_name(self, wanted: str | None, framework: str) -> Folder:
        """Create the job's folder, which reserves the job's name."""
        try:
            for number in range(1, naming.MOST + 1):
                name = naming.candidate(wanted, framework, number)
                with contextlib.suppress(FileExistsError):
                    private_files.make_folder(self._jobs / name)
                    return Folder(self._jobs / name)
        except OSError as error:
            raise exhaustion.fault_of(error) or EnvironmentFault(
                f"the job's folder cannot be created in {self._jobs}: {error.strerror}.",
                "Name another place: `%ciao config storage=/some/folder`.",
            ) from error
        raise BackendError(
            f"there are already {naming.MOST} jobs named {wanted}.",
            "`%ciao delete --finished` removes them.",
        )

    def _addresses(self, plan: Plan) -> dict[Replica, Address]:
        replicas = plan.spec.replicas()
        free = ports.free(len(replicas), self._claims.ports())
        return {
            replica: Address(ports.HOST, port) for replica, port in zip(replicas, free, strict=True)
        }

    async def _present(self, plan: Plan) -> gpus.Devices:
        """Return this machine's GPUs; they are not queried if the job needs none."""
        wanted = gpus.wanted(plan.spec)
        return await asyncio.to_thread(self._devices) if wanted else gpus.Devices()

    def _shares(self, plan: Plan, devices: gpus.Devices) -> Mapping[Replica, Mapping[str, str]]:
        """Return the variables with each replica's GPUs; empty if the job has no %gpu."""
        taken = self._claims.gpus(devices.uuids) if gpus.wanted(plan.spec) else {}
        gpus.check(gpus.wanted(plan.spec), devices, taken)
        shares = gpus.share(plan.spec, devices.names, taken)
        return {replica: devices.variables(share) for replica, share in shares.items()}

    def _record(
        self,
        plan: Plan,
        artifact: Artifact,
        name: str,
        mark: str,
        replicas: tuple[ReplicaPlan, ...],
        outlive: bool,
    ) -> dict[str, Any]:
        pid = plan.owner.pid
        owner = None if outlive or pid is None else {"pid": pid, "birth": processes.birth(pid)}
        spec, framework = plan.spec, plan.framework
        never_end = endless_roles(framework, spec.serve)
        return {
            "id": mark,
            "name": name,
            "host": self._host.identity,
            "framework": framework.name,
            "header": plan.header,
            "made_of": dict(plan.made_of),
            "created": time.time(),
            "by": plan.owner.label,
            "owner": owner,
            "detached": spec.detach,
            "decider": str(framework.decider(spec) or ""),
            "clean": str(spec.clean_policy or self._settings.clean_policy),
            "deadline": spec.deadline,
            "restart": str(spec.cluster.restart_policy or RestartPolicy.NEVER),
            "backoff_limit": spec.restart_limit,
            "retries": spec.retries or 0,
            "grace": float(self._settings.grace(spec.grace)),
            "saves": spec.grace is not None,
            "linger": self._settings.linger,
            "isolated": is_isolated(self._settings),
            "workdir": artifact.workdir,
            "program": artifact.program,
            "replicas": [
                {
                    "name": str(one.replica),
                    "role": one.replica.role,
                    "index": one.replica.index,
                    "command": list(one.command),
                    "env": dict(one.env),
                    "endless": one.replica.role in never_end,
                }
                for one in replicas
            ],
        }

    def _roll_back(self, folder: Folder, started: list[subprocess.Popen[bytes]]) -> None:
        for process in started:
            if process.stdin:
                process.stdin.close()
            # SIGTERM makes the supervisor end its replicas.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._settings.stop_grace + 2)
            process.kill()
            process.wait()
        with contextlib.suppress(OSError, ValueError):
            processes.sweep(folder.read_job()["id"])
        removal.remove(folder)


def _no_room(error: OSError, folder: Folder) -> EnvironmentFault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFault(
            f"the disk is full: no space is left in {folder.path}.",
            "Free some space; `%ciao delete --finished` removes old jobs.",
        )
    return exhaustion.fault_of(error, of_processes=True) or EnvironmentFault(
        f"the job cannot be started: {error.strerror or error}"
        + (f" ({error.filename})." if error.filename else "."),
        "Name another place for jobs: `%ciao config storage=/some/folder`.",
    )
