"""JAX: a JAXJob's workers, its success rule and the variables of JAX's distributed runtime.

Facts: training-operator release-1.9, pkg/controller.v1/jax/{envvar,jaxjob_controller}.go, and
jax/_src/distributed.py with jax/_src/clusters/ompi_cluster.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.frameworks import jax_rank, refusals
from ciao_kernel.frameworks.replicas import (
    at_least_one_worker,
    needs_no_package,
    no_decider,
    one_process,
    python_command,
    replica_specs,
    with_variables,
)
from ciao_kernel.model import (
    Address,
    Artifact,
    JobSpec,
    Manifest,
    Replica,
    SuccessPolicy,
)
from ciao_kernel.plugins import JobManifest

_JOB = "a JAX job"
_PORT = 6666
"""The operator's default (pkg/apis/kubeflow.org/v1/jax_types.go)."""
_LOOPBACK = "127."


class Jax:
    """``%framework=jax``.

    The image is NVIDIA's with GPU support; the project JAX publishes none. Form of its tags:
    docs.nvidia.com/deeplearning/frameworks/jax-release-notes; this tag: the section "Docker" of
    TransformerEngine's README.
    """

    name = "jax"
    roles = ("worker",)
    endless: frozenset[str] = frozenset()
    package = "jax"
    requirement = "jax"
    image = "nvcr.io/nvidia/jax:25.04-py3"

    decider = staticmethod(no_decider)
    needs_package = staticmethod(needs_no_package)
    processes = one_process

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the options; a header without workers means one."""
        refusals.check_launcher(spec, _JOB)
        refusals.check_success_policy(spec, _JOB, SuccessPolicy.ALL_WORKERS, "all its workers do")
        refusals.check_restart_policy(spec, _JOB)
        return at_least_one_worker(spec)

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the command; one of several workers does not wait for them after a failure."""
        if spec.count("worker") == 1:
            return python_command(spec, artifact)
        return jax_rank.CALLER.command(artifact.python, artifact.program_words, spec.args)

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the operator's variables, and those that JAX itself reads."""
        first = addresses[Replica("worker", 0)]
        found = {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_ADDRESS": first.host,
            "COORDINATOR_PORT": str(first.port),
            "NUM_PROCESSES": str(len(addresses)),
            "PROCESS_ID": str(replica.index),
            **_of_jax(spec, str(first), str(replica.index)),
        }
        if first.host.startswith(_LOOPBACK):
            # JAX's own default is all interfaces of the machine.
            found["JAX_COORDINATOR_BIND_ADDRESS"] = str(first)
        return found

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return a JAXJob; the operator sets COORDINATOR_*, NUM_PROCESSES and PROCESS_ID."""
        more = _of_jax(spec, f"$(CIAO_JOB)-worker-0:{_PORT}", "$(CIAO_INDEX)")
        own = {role: with_variables(pod, more) for role, pod in pods.items()}
        body: Manifest = {"jaxReplicaSpecs": replica_specs(spec, own, {"worker": "Worker"}, "jax")}
        return JobManifest("kubeflow.org/v1", "JAXJob", "jaxjobs", "jax", body)


def _of_jax(spec: JobSpec, coordinator: str, rank: str) -> dict[str, str]:
    """Return variables with which ``jax.distributed.initialize()`` needs no arguments.

    JAX reads the coordinator's address from the environment, but the number and the rank of the
    processes only from a launcher that it knows. It recognizes Open MPI by these variables, and
    then reads them alone. It also gives each process one GPU, unless it is told otherwise.

    Args:
        spec: The roles.
        coordinator: Host and port of the first worker.
        rank: Number of the worker.
    """
    gpu = spec.asks("worker").gpu
    all_gpus = ",".join(map(str, range(gpu.count))) if gpu and gpu.count > 1 else ""
    return {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "OMPI_MCA_orte_hnp_uri": "1.0;tcp://127.0.0.1:1",
        "OMPI_COMM_WORLD_SIZE": str(spec.count("worker")),
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        **({"JAX_LOCAL_DEVICE_IDS": all_gpus} if all_gpus else {}),
    }
