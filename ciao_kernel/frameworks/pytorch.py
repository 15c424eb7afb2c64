"""PyTorch: a PyTorchJob's roles, its success rule and its rendezvous environment.

Facts: training-operator release-1.9, pkg/controller.v1/pytorch/{envvar,master,elastic}.go and
pkg/webhooks/pytorch/pytorchjob_webhook.go. torchrun reads the ``PET_`` variables as its own
options (torch/distributed/argparse_util.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.errors import SpecError
from ciao_kernel.frameworks import elastic, refusals, torchrun
from ciao_kernel.frameworks.replicas import (
    one_master,
    python_command,
    replica_specs,
    with_program,
    with_start,
    with_variables,
)
from ciao_kernel.model import (
    Address,
    Artifact,
    JobSpec,
    Manifest,
    Replica,
    Runner,
    SuccessPolicy,
)
from ciao_kernel.plugins import JobManifest

_JOB = "a PyTorch job"
_ALONE = {"LOCAL_RANK": "0"}
"""Of a replica that is one process of several replicas, without torchrun. Without it Accelerate
trains on processors, as several processes of one machine would."""
_OF_NODE = """\
import os, sys
os.environ.setdefault("NODE_RANK", os.environ.get("RANK", "0"))
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Starts the command behind it with NODE_RANK, which the operator does not set.

It sets RANK behind all variables of the manifest, so none of these can refer to it."""


class PyTorch:
    """``%framework=pytorch``."""

    name = "pytorch"
    roles = ("master", "worker")
    endless: frozenset[str] = frozenset()
    package = "torch"
    requirement = "torch"
    image = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the roles, and add the one master of every PyTorchJob that is not elastic."""
        refusals.check_slots(spec, _JOB, "Ask for processes with %nprocPerNode.")
        if spec.cluster.success_policy is SuccessPolicy.ALL_WORKERS:
            who = "a worker" if spec.elastic else "its master"
            raise SpecError(
                f"{_JOB} succeeds when {who} does; there is no other policy.",
                "Leave out %successPolicy.",
                directive="successPolicy",
            )
        if spec.runner is Runner.PYTHON and (spec.nproc_per_node or 1) > 1:
            raise SpecError(
                "without torchrun, a replica has only one process.",
                "Leave out %nprocPerNode or %runner=python.",
                directive="nprocPerNode",
            )
        return elastic.complete(spec) if spec.elastic else one_master(spec, _JOB)

    def decider(self, spec: JobSpec) -> Replica:
        """Return the master, or worker-0 of an elastic job, which ends last: it holds the store."""
        return elastic.HOST if spec.elastic else Replica("master", 0)

    def needs_package(self, spec: JobSpec) -> bool:
        """Return whether torchrun is used, which is part of the package."""
        return spec.runner is not Runner.PYTHON

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the call of torchrun, which reads the ``PET_`` variables, or of plain Python."""
        if spec.runner is Runner.PYTHON:
            return python_command(spec, artifact)
        if spec.elastic:
            return elastic.command(artifact, spec)
        return torchrun.command(artifact.python, artifact.program_words, spec.args)

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return MASTER_*, PET_*, RANK and WORLD_SIZE; RANK is the node's, as in a PyTorchJob.

        NODE_RANK is for Lightning, which computes the rank of each process from it. torchrun tells
        its processes GROUP_RANK instead.
        """
        if spec.elastic:
            count = processes_per_replica(spec, replica)
            return elastic.environment(spec, replica, addresses, count)
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
            **({"NODE_RANK": str(rank)} if spec.runner is Runner.PYTHON else {}),
            **(_ALONE if _is_one_process(spec, replica.role) else {}),
        }

    def processes(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> list[dict[str, str]]:
        """Return the variables of the processes that torchrun would start, or of the only one."""
        own = self.environment(spec, replica, addresses)
        if spec.runner is Runner.PYTHON:
            return [own]
        return torchrun.processes(own, [self.environment(spec, o, addresses) for o in addresses])

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return a PyTorchJob; it has one ``nprocPerNode``, and other numbers go to torchrun."""
        titles = {role: role.title() for role in self.roles}
        common = processes_per_replica(spec, self.decider(spec))
        own = {}
        for role, pod in pods.items():
            count = processes_per_replica(spec, Replica(role, 0))
            own[role] = pod if count == common else _with_processes(pod, count)
            if _is_one_process(spec, role):
                own[role] = with_variables(own[role], _ALONE)
            if spec.runner is Runner.PYTHON:
                own[role] = with_start(own[role], _OF_NODE)
        body: Manifest = {
            "nprocPerNode": str(common),
            "pytorchReplicaSpecs": replica_specs(spec, own, titles, "pytorch"),
        }
        if spec.elastic:
            body["elasticPolicy"] = elastic.policy(spec)
        return JobManifest("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", "pytorch", body)


def _is_one_process(spec: JobSpec, role: str) -> bool:
    """Return whether a replica has no torchrun, and is one of several with a GPU at most.

    With more GPUs the program may start a process for each: Lightning does, without LOCAL_RANK.
    """
    gpu = spec.asks(role).gpu
    several = len(spec.replicas()) > 1
    return spec.runner is Runner.PYTHON and several and (gpu is None or gpu.count < 2)


def _with_processes(pod: Manifest, count: int) -> Manifest:
    """Set torchrun's number of processes: its option overrides the operator's variable."""
    command = list(pod["spec"]["containers"][0].get("command") or ())
    option = f"--nproc-per-node={count}"
    return with_program(pod, command=torchrun.with_option(command, option))


def processes_per_replica(spec: JobSpec, replica: Replica) -> int:
    """Return the number of processes that torchrun starts in a replica.

    The operator's default is ``auto``: one process per core, which turns "2 workers" into a world
    of 64. Here the default is one process, or one per GPU of the replica.
    """
    if spec.runner is Runner.PYTHON:
        return 1
    gpu = spec.asks(replica.role).gpu
    return spec.nproc_per_node or (gpu.count if gpu else 0) or 1
