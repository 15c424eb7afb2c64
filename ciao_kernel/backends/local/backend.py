"""The local backend: jobs as processes of this machine, each with a supervisor of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from ciao_kernel.backends.local import gpus, interpreter, ports, processes
from ciao_kernel.backends.local.follower import LogReader, follow
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, EnvironmentFault, NoSuchJob, SpecError
from ciao_kernel.model import (
    Address,
    Artifact,
    Builder,
    Emit,
    Event,
    Job,
    Plan,
    Replica,
    ReplicaPlan,
    ReplicaStatus,
    State,
    Status,
)

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels and no look-alikes: a random name spells no word and is read aloud without doubt."""
_ROOT = str(Path(__file__).parents[3])
_START_TIMEOUT = 30.0


class LocalBackend:
    """``%backend=local``.

    Args:
        settings: Where jobs are kept and how they are stopped.
        devices: Returns this machine's GPUs; a test passes its own.
    """

    name = "local"
    outlives_kernel = False

    def __init__(self, settings: Settings, devices: Any = gpus.installed) -> None:
        self._settings = settings
        self._jobs = settings.storage / "jobs"
        self._devices = devices

    def available(self) -> bool:
        """Always: there is a machine."""
        return True

    # ------------------------------------------------------------------------- submission

    async def check(self, plan: Plan) -> None:
        """See that the machine has the interpreter, the packages and the GPUs."""
        total = len(plan.spec.replicas())
        if total > self._settings.local_replicas:
            raise SpecError(
                f"the job has {total} replicas, and this machine runs at most "
                f"{self._settings.local_replicas:.0f} at once.",
                "Ask for fewer, or raise the setting: `%ciao config localReplicas=…`.",
                directive=max(plan.spec.groups, key=lambda g: g.count).role,
            )
        if plan.spec.builder not in (None, "auto", "folder"):
            raise SpecError(
                f"the builder {plan.spec.builder} makes nothing that runs on this machine.",
                "Leave %builder out.",
                directive="builder",
            )
        python = self._python(plan)
        package = plan.framework.package
        needed = package in plan.source.imports or plan.framework.needs_package(plan.spec)
        if needed and not await interpreter.has(python, package):
            raise EnvironmentFault(
                f"{python} has no package {package}, which this job imports.",
                f"Install it (in a plain cell: %pip install {plan.framework.requirement}), or "
                "name another interpreter with %python=….",
            )
        if wanted := gpus.wanted(plan.spec):
            devices = await asyncio.to_thread(self._devices)
            gpus.check(wanted, devices, await self._taken())

    async def preview(self, plan: Plan) -> tuple[ReplicaPlan, ...]:
        """Show ports and devices as a run now would choose them."""
        artifact = Artifact(plan.source, self._python(plan), str(self._jobs / "NAME" / "work"))
        return await self._replica_plans(plan, artifact, plan.name or "NAME")

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Lay the job's folder out and start its supervisor."""
        folder = self._claim(plan.name, plan.framework.name)
        try:
            artifact = await builder.build(plan.source, self._python(plan), folder.path, emit)
            name = folder.path.name
            replicas = await self._replica_plans(plan, artifact, name)
            folder.log("x").parent.mkdir()
            folder.write_job(self._record(plan, artifact, name, replicas, outlive))
            await self._supervise(folder)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._remove, folder))
            raise
        return _job(folder)

    def _python(self, plan: Plan) -> str:
        asked = plan.spec.python or self._settings.python
        return interpreter.find(asked, plan.folder) if asked else sys.executable

    def _claim(self, wanted: str | None, framework: str) -> Folder:
        """Make the job's folder; its name is the job's, and nobody else's."""
        try:
            self._jobs.mkdir(parents=True, exist_ok=True, mode=0o700)
            for number in range(1, 1000):
                if wanted is None:
                    name = framework + "-" + "".join(secrets.choice(_LETTERS) for _ in range(5))
                else:
                    name = wanted if number == 1 else f"{wanted}-{number}"
                with contextlib.suppress(FileExistsError):
                    (self._jobs / name).mkdir(mode=0o700)
                    return Folder(self._jobs / name)
        except OSError as error:
            raise EnvironmentFault(
                f"no folder for the job can be made in {self._jobs}: {error.strerror}.",
                "Name another place: `%ciao config storage=/some/folder`.",
            ) from error
        raise BackendError(
            f"there are 999 jobs of the name {wanted}.", "`ciao delete --finished` removes them."
        )

    async def _replica_plans(
        self, plan: Plan, artifact: Artifact, name: str
    ) -> tuple[ReplicaPlan, ...]:
        spec, framework = plan.spec, plan.framework
        replicas = spec.replicas()
        numbers = ports.free(len(replicas))
        addresses = {
            replica: Address(ports.HOST, port)
            for replica, port in zip(replicas, numbers, strict=True)
        }
        shares: Mapping[Replica, tuple[str, ...]] = {}
        if gpus.wanted(spec):
            devices = await asyncio.to_thread(self._devices)
            taken = await self._taken()
            gpus.check(gpus.wanted(spec), devices, taken)
            shares = gpus.share(spec, devices, taken)
        elif any(spec.asks(group.role).gpu for group in spec.groups):
            shares = dict.fromkeys(replicas, ())
        command = framework.command(spec, artifact)
        plans = []
        for replica in replicas:
            env = {
                "CIAO_JOB": name,
                "CIAO_REPLICA": str(replica),
                "PYTHONUNBUFFERED": "1",
                **_loopback(),
                **framework.environment(spec, replica, addresses),
                **dict(artifact.env),
            }
            if replica in shares:
                env["CUDA_VISIBLE_DEVICES"] = ",".join(shares[replica])
            env.update(spec.env)
            plans.append(ReplicaPlan(replica, command, tuple(env.items())))
        return tuple(plans)

    def _record(
        self,
        plan: Plan,
        artifact: Artifact,
        name: str,
        replicas: tuple[ReplicaPlan, ...],
        outlive: bool,
    ) -> dict[str, Any]:
        pid = plan.owner.pid
        owner = None if outlive or pid is None else {"pid": pid, "birth": processes.birth(pid)}
        spec, framework = plan.spec, plan.framework
        return {
            "id": f"{name}-{secrets.token_hex(8)}",
            "name": name,
            "framework": framework.name,
            "header": plan.header,
            "created": time.time(),
            "by": plan.owner.label,
            "owner": owner,
            "detached": spec.detach,
            "decider": str(framework.decider(spec)),
            "clean": str(spec.clean_policy or self._settings.clean_policy),
            "deadline": spec.deadline,
            "grace": self._settings.stop_grace,
            "linger": self._settings.linger,
            "workdir": artifact.workdir,
            "program": artifact.program,
            "replicas": [
                {
                    "name": str(one.replica),
                    "role": one.replica.role,
                    "index": one.replica.index,
                    "command": list(one.command),
                    "env": dict(one.env),
                    "endless": one.replica.role in framework.endless,
                }
                for one in replicas
            ],
        }

    async def _supervise(self, folder: Folder) -> None:
        """Start the supervisor and wait until it has started the replicas."""
        # No site packages on Linux, where it needs none: half the start-up time.
        quick = ["-S"] if sys.platform.startswith("linux") else []
        bootstrap = (
            f"import sys; sys.path.insert(0, {_ROOT!r}); "
            "from ciao_kernel.backends.local.supervisor import main; main()"
        )
        with folder.supervisor_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-I", *quick, "-c", bootstrap, str(folder.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_TIMEOUT
        try:
            while not folder.status_file.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    text = folder.supervisor_log.read_text(errors="replace").strip()
                    raise BackendError(
                        "the job's supervisor did not start: "
                        + (text.splitlines() or ["it said nothing"])[-1],
                        "`ciao doctor` may tell why.",
                    )
                await asyncio.sleep(0.003)
        except BaseException:
            # SIGTERM makes it end its replicas first; a second cancellation cannot come between.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._settings.stop_grace + 2)
            raise

    def _remove(self, folder: Folder) -> None:
        with contextlib.suppress(OSError, ValueError):
            processes.kill(processes.marked(folder.read_job()["id"]))
        shutil.rmtree(folder.path, ignore_errors=True)

    async def _taken(self) -> dict[str, str]:
        """The GPUs that running jobs hold, and which job holds each."""
        taken = {}
        for job, status in await self.jobs():
            if not all(one.state.over for one in status.replicas):
                with contextlib.suppress(OSError, ValueError):
                    for replica in self._folder(job).read_job()["replicas"]:
                        for device in replica["env"].get("CUDA_VISIBLE_DEVICES", "").split(","):
                            taken[device] = job.name
        taken.pop("", None)
        return taken

    # ---------------------------------------------------------------------- jobs that exist

    async def follow(self, job: Job) -> AsyncIterator[Event]:
        """See :func:`ciao_kernel.backends.local.follower.follow`."""
        folder = self._folder(job)
        readers = [LogReader(replica, folder.log(str(replica))) for replica in job.replicas]
        seen: list[Any] = [None]

        def changed() -> tuple[Any, Status] | None:
            try:
                stat = folder.status_file.stat()
            except FileNotFoundError:
                return None
            if (stamp := (stat.st_mtime_ns, stat.st_ino)) == seen[0]:
                return None
            seen[0] = stamp
            record = folder.read_status()
            return None if record is None else (stamp, _status(folder, record))

        async with contextlib.aclosing(
            follow(readers, changed, functools.partial(_supervised, folder))
        ) as events:
            async for event in events:
                yield event

    async def stop(self, job: Job, reason: str) -> None:
        """SIGTERM to all replicas, SIGKILL after the grace; the supervisor does both."""
        folder = self._folder(job)
        record = folder.read_status()
        if record is None:
            return
        supervisor = record["supervisor"]
        until = time.monotonic() + self._settings.stop_grace + 5
        if processes.alive(supervisor["pid"], supervisor["birth"]):
            processes.kill([supervisor["pid"]], signal.SIGTERM)
        while processes.alive(supervisor["pid"], supervisor["birth"]):
            if time.monotonic() > until:
                processes.kill([supervisor["pid"]])
            await asyncio.sleep(0.02)
        with contextlib.suppress(OSError, ValueError):
            left = await asyncio.to_thread(processes.marked, folder.read_job()["id"])
            processes.kill(left)

    async def delete(self, job: Job) -> None:
        """Stop the job and remove its folder, with all that it wrote there."""
        await self.stop(job, "deleted")
        await asyncio.to_thread(shutil.rmtree, self._folder(job).path, True)

    async def jobs(self) -> list[tuple[Job, Status]]:
        """All jobs that have a folder, oldest first; half-made ones are left out."""
        found = []
        for path in self._jobs.iterdir() if self._jobs.is_dir() else ():
            with contextlib.suppress(OSError, ValueError, KeyError):
                found.append(self._read(Folder(path)))
        return sorted(found, key=lambda pair: pair[0].created)

    async def find(self, name: str) -> tuple[Job, Status]:
        """One job by its name; the error offers the nearest one."""
        path = self._jobs / name
        if path.parent == self._jobs and path.is_dir():
            with contextlib.suppress(OSError, ValueError, KeyError):
                return self._read(Folder(path))
        raise NoSuchJob(f"there is no job {name} on this machine.", "`ciao jobs` lists all jobs.")

    async def log(self, job: Job, replica: Replica, *, last: int | None = None) -> bytes:
        """Read the replica's log file."""
        try:
            with self._folder(job).log(str(replica)).open("rb") as stream:
                if last is not None:
                    stream.seek(max(0, os.fstat(stream.fileno()).st_size - last))
                return stream.read()
        except FileNotFoundError:
            return b""

    def _folder(self, job: Job) -> Folder:
        return Folder(self._jobs / job.name)

    def _read(self, folder: Folder) -> tuple[Job, Status]:
        record = folder.read_status()
        if record is None:
            raise ValueError("not started yet")
        status = _status(folder, record)
        if not status.settled and not _supervised(folder):
            record["state"] = record["state"] if status.state.over else State.LOST
            record["settled"] = True
            for replica in record["replicas"]:
                if not State(replica["state"]).over:
                    replica["state"] = State.LOST
            status = _status(folder, record)
        return _job(folder), status


def _loopback() -> dict[str, str]:
    """Keep the replicas' own rendezvous off other networks of this machine."""
    interface = "lo" if sys.platform.startswith("linux") else "lo0"
    return {
        name: interface
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        if name not in os.environ
    }


def _supervised(folder: Folder) -> bool:
    record = folder.read_status()
    if record is None:
        return False
    return processes.alive(record["supervisor"]["pid"], record["supervisor"]["birth"])


def _job(folder: Folder) -> Job:
    record = folder.read_job()
    return Job(
        name=record["name"],
        backend=LocalBackend.name,
        framework=record["framework"],
        replicas=tuple(Replica(one["role"], one["index"]) for one in record["replicas"]),
        created=record["created"],
        place=record["workdir"],
        program=record["program"],
        header=record["header"],
        owner=record["by"],
        detached=record["detached"],
    )


def _status(folder: Folder, record: Mapping[str, Any]) -> Status:
    replicas = tuple(
        ReplicaStatus(
            replica=_replica(one["name"]),
            state=State(one["state"]),
            since=one["since"],
            exit_code=one["exit_code"],
            reason=one["reason"],
            log=str(folder.log(one["name"])),
        )
        for one in record["replicas"]
    )
    return Status(
        state=State(record["state"]),
        replicas=replicas,
        since=record["since"],
        reason=record["reason"],
        message=record["message"],
        settled=record["settled"],
        decided_by=_replica(record["decided_by"]) if record["decided_by"] else None,
    )


def _replica(name: str) -> Replica:
    role, _, index = name.rpartition("-")
    return Replica(role, int(index))
