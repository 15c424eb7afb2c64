"""PaddlePaddle: the workers of a collective PaddleJob, their success rule and their variables.

Facts: training-operator release-1.9, pkg/controller.v1/paddlepaddle/{envvar,
paddlepaddle_controller}.go, and paddle/distributed/parallel.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ciao_kernel.delivery.name_wait import WAIT_FOR_NAME
from ciao_kernel.errors import SpecError
from ciao_kernel.frameworks import refusals
from ciao_kernel.frameworks.replicas import (
    at_least_one_worker,
    needs_no_package,
    no_decider,
    python_command,
    replica_specs,
    with_start,
    with_variables,
)
from ciao_kernel.model import (
    Address,
    JobSpec,
    Manifest,
    Replica,
    SuccessPolicy,
)
from ciao_kernel.plugins import JobManifest

_JOB = "a Paddle job"
_PORT = 36543
"""The operator's default (pkg/apis/kubeflow.org/v1/paddlepaddle_types.go)."""
_WAIT = f"""\
import os, socket, sys, time
{WAIT_FOR_NAME}
wait_for_name(os.environ["PADDLE_MASTER"].rpartition(":")[0], 300)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs in a pod before its command, which Paddle's own launcher would not need.

The time is limited since the name ends with worker-0: a worker that starts again later would wait
in vain."""


class Paddle:
    """``%framework=paddle``: one process per worker, without ``paddle.distributed.launch``.

    That launcher copies the program's output through a file and adds its own lines; the variables
    that it would set are enough. The image is the one for CPUs of
    https://www.paddleocr.ai/latest/en/version3.x/paddlepaddle_installation.html.
    """

    name = "paddle"
    roles = ("master", "worker")
    refused_roles = frozenset({"master"})
    endless: frozenset[str] = frozenset()
    package = "paddle"
    requirement = "paddlepaddle"
    image = "ccr-2vdh3abv-pub.cnc.bj.baidubce.com/paddlepaddle/paddle:3.0.0"

    decider = staticmethod(no_decider)
    needs_package = staticmethod(needs_no_package)
    command = staticmethod(python_command)

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the roles; a header without workers means one."""
        refusals.check_launcher(spec, _JOB)
        refusals.check_success_policy(spec, _JOB, SuccessPolicy.ALL_WORKERS, "all its workers do")
        refusals.check_restart_policy(spec, _JOB)
        if spec.count("master"):
            # With a master the operator starts a job of parameter servers.
            raise SpecError(
                "a Paddle job has no master: the published packages of paddlepaddle 3 are built "
                "without parameter servers.",
                "Leave out %master; the workers train together, and worker-0 is the first of them.",
                directive="master",
            )
        workers = tuple(group for group in spec.groups if group.role == "worker")
        return at_least_one_worker(replace(spec, groups=workers))

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the variables that ``init_parallel_env`` reads."""
        own, first = str(addresses[replica]), str(addresses[Replica("worker", 0)])
        return {
            "PYTHONUNBUFFERED": "1",
            "PADDLE_MASTER": first,
            "PADDLE_NNODES": str(len(addresses)),
            **_of_paddle(spec, map(str, addresses.values()), own, str(replica.index)),
        }

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return a PaddleJob; the operator sets PADDLE_MASTER and PADDLE_NNODES."""
        hosts = [f"$(CIAO_JOB)-{replica}:{_PORT}" for replica in spec.replicas()]
        own = f"$(CIAO_JOB)-worker-$(CIAO_INDEX):{_PORT}"
        more = _of_paddle(spec, hosts, own, "$(CIAO_INDEX)")
        named = {role: with_variables(pod, more) for role, pod in pods.items()}
        if spec.count("worker") > 1:
            named = {role: with_start(pod, _WAIT) for role, pod in named.items()}
        replicas = replica_specs(spec, named, {"worker": "Worker"}, "paddle")
        body: Manifest = {"paddleReplicaSpecs": replicas}
        return JobManifest("kubeflow.org/v1", "PaddleJob", "paddlejobs", "paddle", body)


def _of_paddle(spec: JobSpec, endpoints: Iterable[str], own: str, rank: str) -> dict[str, str]:
    """Return the variables that Paddle's launcher would set for a process.

    Args:
        spec: The roles and their GPUs.
        endpoints: Host and port of each worker.
        own: Host and port of this worker.
        rank: Its number.
    """
    gpu = spec.asks("worker").gpu
    return {
        "PADDLE_TRAINERS_NUM": str(spec.count("worker")),
        "PADDLE_TRAINER_ID": rank,
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": own,
        # With GPUs, Paddle chooses NCCL.
        **({} if gpu and gpu.count else {"PADDLE_DISTRI_BACKEND": "gloo"}),
    }
