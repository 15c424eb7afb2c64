"""PyTorch: a PyTorchJob's roles, its rule of success and its rendezvous environment.

Facts: training-operator release-1.9, pkg/controller.v1/pytorch/{envvar,master,elastic}.go and
pkg/webhooks/pytorch/pytorchjob_webhook.go. torchrun reads the ``PET_`` variables as its own
options (torch/distributed/argparse_util.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ciao_kernel.errors import SpecError
from ciao_kernel.frameworks.replicas import replica_specs
from ciao_kernel.model import (
    Address,
    Artifact,
    JobSpec,
    Manifest,
    Replica,
    ReplicaGroup,
    Runner,
    SuccessPolicy,
)
from ciao_kernel.plugins import JobManifest

_TORCHRUN = "torch.distributed.run"


class PyTorch:
    """``%framework=pytorch``."""

    name = "pytorch"
    roles = ("master", "worker")
    endless: frozenset[str] = frozenset()
    package = "torch"
    requirement = "torch"
    image = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the roles, and add the one master that every PyTorchJob has."""
        said = {group.role: group for group in spec.groups}
        master = said.get("master", ReplicaGroup("master", 1))
        if master.count != 1:
            raise SpecError(
                f"a PyTorch job has exactly one master (rank 0), and {master.count} are asked for.",
                "Write %master=1, or leave it out; %worker says how many others there are.",
                directive="master",
            )
        if spec.cluster.success_policy is SuccessPolicy.ALL_WORKERS:
            raise SpecError(
                "a PyTorch job succeeds with its master; there is no other policy.",
                "Leave %successPolicy out.",
                directive="successPolicy",
            )
        if spec.runner is Runner.PYTHON and (spec.nproc_per_node or 1) > 1:
            raise SpecError(
                "without torchrun a replica is one process.",
                "Leave %nprocPerNode or %runner=python out.",
                directive="nprocPerNode",
            )
        workers = [group for group in spec.groups if group.role == "worker" and group.count]
        return replace(spec, groups=(master, *workers))

    def decider(self, spec: JobSpec) -> Replica:
        """The master's success is the job's."""
        return Replica("master", 0)

    def needs_package(self, spec: JobSpec) -> bool:
        """Only for torchrun, which is part of the package."""
        return spec.runner is not Runner.PYTHON

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """torchrun, which takes all it needs from the ``PET_`` variables, unless told not to."""
        if spec.runner is Runner.PYTHON:
            return (artifact.python, "-u", artifact.program, *spec.args)
        return (artifact.python, "-u", "-m", _TORCHRUN, artifact.program, *spec.args)

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """MASTER_*, PET_*, RANK and WORLD_SIZE; RANK is the rank of the node, as there."""
        master = addresses[Replica("master", 0)]
        world = sum(processes_per_replica(spec, other) for other in addresses)
        rank = 0 if replica.role == "master" else replica.index + 1
        return {
            "PYTHONUNBUFFERED": "1",
            "MASTER_ADDR": master.host,
            "MASTER_PORT": str(master.port),
            "PET_MASTER_ADDR": master.host,
            "PET_MASTER_PORT": str(master.port),
            "WORLD_SIZE": str(world),
            "RANK": str(rank),
            "PET_NODE_RANK": str(rank),
            "PET_NNODES": str(len(addresses)),
            "PET_NPROC_PER_NODE": str(processes_per_replica(spec, replica)),
        }

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """A PyTorchJob. It has one number of processes; roles that differ tell torchrun theirs."""
        titles = {role: role.title() for role in self.roles}
        common = processes_per_replica(spec, self.decider(spec))
        own = {}
        for role, pod in pods.items():
            count = processes_per_replica(spec, Replica(role, 0))
            own[role] = pod if count == common else _with_processes(pod, count)
        body: Manifest = {
            "nprocPerNode": str(common),
            "pytorchReplicaSpecs": replica_specs(spec, own, titles, "pytorch"),
        }
        return JobManifest("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", "pytorch", body)


def _with_processes(pod: Manifest, count: int) -> Manifest:
    """Tell torchrun how many processes to start: an option wins over the operator's variable."""
    first, *others = pod["spec"]["containers"]
    command = list(first.get("command") or ())
    if _TORCHRUN in command:
        command.insert(command.index(_TORCHRUN) + 1, f"--nproc-per-node={count}")
    containers = [{**first, "command": command}, *others]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def processes_per_replica(spec: JobSpec, replica: Replica) -> int:
    """How many processes torchrun starts in a replica.

    The operator's default is ``auto``: one a core, which makes a world of 64 out of "2
    workers". Here it is one, or one for each GPU of the replica.
    """
    if spec.runner is Runner.PYTHON:
        return 1
    gpu = spec.asks(replica.role).gpu
    return spec.nproc_per_node or (gpu.count if gpu else 0) or 1
