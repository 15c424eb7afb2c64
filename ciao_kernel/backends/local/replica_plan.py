"""Command and environment of each replica of a local job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ciao_kernel.backends.local import executable
from ciao_kernel.backends.local.machine.gpus import VISIBLE
from ciao_kernel.delivery import checkpoints, event_files, site_folder, volume_variables
from ciao_kernel.delivery.output import results
from ciao_kernel.model import Address, Artifact, Replica
from ciao_kernel.model.environment import ALWAYS, LAUNCHER_PATH, UNLESS_SET
from ciao_kernel.plugins import AnyLanguage, Launching, Plan, replica_command


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """Command and environment of one replica."""

    replica: Replica
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


def replica_plans(
    plan: Plan,
    artifact: Artifact,
    name: str,
    addresses: Mapping[Replica, Address],
    shares: Mapping[Replica, Mapping[str, str]],
    base: str = "",
) -> tuple[ReplicaPlan, ...]:
    """Return how each replica is started, in the order of its address.

    Args:
        plan: The job.
        artifact: What the builder has delivered.
        name: Name of the job.
        addresses: Address of each replica.
        shares: Variables with the GPUs of each replica; empty if the job has no %gpu.
        base: The interpreter that the replicas' own one extends, if there is another.
    """
    any_language = isinstance(plan.framework, AnyLanguage)
    plans = []
    for replica in addresses:
        seen = plan.spec.seen_by(replica.role)
        env = {
            "CIAO_JOB": name,
            "CIAO_REPLICA": str(replica),
            **ALWAYS,
            **{name: value for name, value in UNLESS_SET.items() if name not in os.environ},
            **_loopback(),
            **plan.framework.environment(plan.spec, replica, addresses),
            **dict(artifact.env),
            **checkpoints.variables(plan.spec, artifact.workdir),
            **volume_variables.variables(seen, artifact.workdir, artifact.source),
            **event_files.variables(plan.spec, artifact.workdir, replica),
            **({"CIAO_CELL": artifact.program} if any_language else {}),
        }
        if VISIBLE not in dict(plan.spec.env):  # else the user's names count, in the user's order
            env.update(shares.get(replica, {}))
        env.update(results.output_folder(plan.spec, artifact.workdir))
        env.update(plan.spec.env)
        if base and isinstance(plan.framework, Launching):
            # pip counts the packages of the base as installed: their mpirun is beside the base. Its
            # folder, such as /usr/bin, must not hide other programs of the user's PATH.
            path = env.get("PATH", os.environ.get("PATH", os.defpath))
            folder = os.path.dirname(base)  # noqa: PTH120
            env["PATH"] = os.pathsep.join((executable.beside((artifact.python,), path), folder))
            env[LAUNCHER_PATH] = folder
        if plan.spec.output_names:
            target = results.folder(artifact.workdir, replica)
            env.update(results.variables(plan.spec, artifact, str(target)))
        if site_folder.starts(artifact.source):
            before = env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
            paths = [site_folder.path(artifact.workdir), *([before] if before else [])]
            env["PYTHONPATH"] = os.pathsep.join(paths)
        command = replica_command(plan.framework, plan.spec, artifact, replica.role)
        plans.append(ReplicaPlan(replica, command, tuple(env.items())))
    return tuple(plans)


def visible_devices(replicas: tuple[ReplicaPlan, ...]) -> list[str]:
    """Return the GPUs assigned to the replicas, by %gpu or by the user's %envvar."""
    values = [dict(one.env).get(VISIBLE, "") for one in replicas]
    return [device for value in values for device in value.split(",") if device]


def _loopback() -> dict[str, str]:
    """Return variables that keep the replicas' rendezvous on the loopback interface."""
    return {
        name: "lo"
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        if name not in os.environ
    }
