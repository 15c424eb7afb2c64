"""XGBoost: an XGBoostJob's roles, its success rule and the variables of its replicas.

Facts: training-operator release-1.9, pkg/controller.v1/xgboost/{xgboost,xgboostjob_controller}.go
and pkg/webhooks/xgboost/xgboostjob_webhook.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.frameworks import rabit, refusals
from ciao_kernel.frameworks.replicas import one_master, python_command, replica_specs
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

_JOB = "an XGBoost job"
_MASTER = Replica("master", 0)


class XGBoost:
    """``%framework=xgboost``. Its project publishes no image for training, so a user names one."""

    name = "xgboost"
    roles = ("master", "worker")
    endless: frozenset[str] = frozenset()
    package = "xgboost"
    requirement = "xgboost"
    image = ""

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the roles, and add the one master that every XGBoostJob has."""
        refusals.check_launcher(spec, _JOB)
        refusals.check_success_policy(spec, _JOB, SuccessPolicy.WORKER_0, "its master does")
        refusals.check_restart_policy(spec, _JOB)
        return one_master(spec, _JOB)

    def decider(self, spec: JobSpec) -> Replica:
        """Return the master: its success is the success of the job."""
        return _MASTER

    def needs_package(self, spec: JobSpec) -> bool:
        """Return whether several replicas connect before the program starts."""
        return spec.runner is not Runner.PYTHON and len(spec.replicas()) > 1

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the program inside a communicator, or plain Python if it opens one by itself."""
        files = (artifact.source.entry, *artifact.source.modules)
        texts = (one.data if one.code is None else one.code for one in files)
        if not self.needs_package(spec) or any(
            rabit.connects_itself(text) for text in texts if text is not None
        ):
            return python_command(spec, artifact)
        return rabit.CALLER.command(artifact.python, artifact.program_words, spec.args)

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return MASTER_*, RANK and WORLD_SIZE, and the workers' hosts if there are workers."""
        master = addresses[_MASTER]
        workers = [address for one, address in addresses.items() if one.role == "worker"]
        port = addresses[replica] if replica.role == "worker" else next(iter(workers), master)
        return {
            "PYTHONUNBUFFERED": "1",
            "MASTER_ADDR": master.host,
            "MASTER_PORT": str(master.port),
            "WORLD_SIZE": str(len(addresses)),
            "RANK": str(0 if replica.role == "master" else replica.index + 1),
            **(
                {"WORKER_PORT": str(port.port), "WORKER_ADDRS": ",".join(w.host for w in workers)}
                if workers
                else {}
            ),
        }

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return an XGBoostJob."""
        titles = {role: role.title() for role in self.roles}
        body: Manifest = {"xgbReplicaSpecs": replica_specs(spec, pods, titles, "xgboost")}
        return JobManifest("kubeflow.org/v1", "XGBoostJob", "xgboostjobs", "xgboost", body)
