"""TensorFlow: a TFJob's roles, its success rule and its TF_CONFIG.

Facts: training-operator release-1.9, pkg/controller.v1/tensorflow/{tensorflow,tfjob_controller}.go
and pkg/webhooks/tensorflow/tfjob_webhook.go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from ciao_kernel.errors import SpecError
from ciao_kernel.frameworks import refusals
from ciao_kernel.frameworks.replicas import one_process, python_command, replica_specs
from ciao_kernel.model import (
    Address,
    Artifact,
    JobSpec,
    Manifest,
    Replica,
    ReplicaGroup,
    SuccessPolicy,
)
from ciao_kernel.plugins import JobManifest

_SERVER = """\
import json, os
import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
config["cluster"].pop("evaluator", None)  # is no server: a session would wait for it
tf.distribute.Server(
    config["cluster"], job_name=task["type"], task_index=task["index"], protocol="grpc").join()
"""
"""The standard server of TensorFlow, which runs the parts of the graph that others place in it
(https://www.tensorflow.org/api_docs/python/tf/distribute/Server)."""
_WITHOUT_EVALUATOR = """\
import json, os, sys

config = json.loads(os.environ["TF_CONFIG"])
if config["task"]["type"] != "evaluator":
    config["cluster"].pop("evaluator", None)
    os.environ["TF_CONFIG"] = json.dumps(config, separators=(",", ":"))
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Starts the command behind it without the evaluator in TF_CONFIG, where the operator puts it.

A coordinator connects to all tasks of the cluster (tensorflow/python/eager/remote.py,
``connect_to_cluster``), and would wait for ever for the evaluator, which is no server."""


class TensorFlow:
    """``%framework=tensorflow``."""

    name = "tensorflow"
    roles = ("ps", "chief", "master", "worker", "evaluator")
    endless: frozenset[str] = frozenset({"ps"})
    package = "tensorflow"
    requirement = "tensorflow"
    image = "tensorflow/tensorflow:2.21.0"
    servers = ("ps", "worker")

    processes = one_process

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the roles; a header without roles means one worker."""
        refusals.check_launcher(spec, "a TensorFlow job")
        if not spec.groups:
            return replace(spec, groups=(ReplicaGroup("worker", 1),))
        spec = self._with_coordinator(spec)
        for role in ("chief", "master"):
            if spec.count(role) > 1:
                raise SpecError(
                    f"a TensorFlow job has at most one {role}, but {spec.count(role)} are "
                    "requested.",
                    f"Write %{role}=1, and %worker for the others.",
                    directive=role,
                )
        if spec.count("chief") and spec.count("master"):
            raise SpecError(
                "chief and master are two names for one role.", "Keep %chief.", directive="master"
            )
        if not (spec.count("chief") or spec.count("master") or spec.count("worker")):
            # The operator would report success for this job while its pods fail.
            others = [group.role for group in spec.groups if group.count]
            raise SpecError(
                f"no replica would train: there {'are' if len(others) > 1 else 'is'} only "
                f"{' and '.join(others)}."
                if others
                else "all roles have a count of 0: nothing would run.",
                "Add workers, for example %worker=2.",
                directive=others[0] if others else spec.groups[-1].role,
            )
        return replace(spec, groups=tuple(group for group in spec.groups if group.count))

    def _with_coordinator(self, spec: JobSpec) -> JobSpec:
        """Add the chief that runs the cell if the workers only serve.

        Raises:
            SpecError: The job would have to wait for workers that never end.
        """
        if "worker" not in spec.serve:
            return spec
        if spec.cluster.success_policy is SuccessPolicy.ALL_WORKERS:
            raise SpecError(
                "workers that only serve never end: the chief's success is the success of the job.",
                "Leave out %successPolicy.",
                directive="successPolicy",
            )
        if spec.count("chief") or spec.count("master"):
            return spec
        groups = (*(one for one in spec.groups if one.count), ReplicaGroup("chief", 1))
        return replace(
            spec, groups=tuple(sorted(groups, key=lambda one: self.roles.index(one.role)))
        )

    def decider(self, spec: JobSpec) -> Replica:
        """Return chief or master if there is one, else worker-0; a PS never decides."""
        for role in ("chief", "master"):
            if spec.count(role):
                return Replica(role, 0)
        return Replica("worker", 0)

    def needs_package(self, spec: JobSpec) -> bool:
        """Return whether replicas only serve: the program itself need not import TensorFlow."""
        return bool(spec.serve)

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the command; ``-u``, as the operator sets PYTHONUNBUFFERED only for others.

        A coordinator of replicas that only serve does not see the evaluator in its cluster.
        """
        command = python_command(spec, artifact)
        if not (spec.serve and spec.count("evaluator")):
            return command
        return (artifact.python, "-I", "-S", "-c", _WITHOUT_EVALUATOR, *command)

    def server_command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the command of a replica that only serves, until the end of the job stops it."""
        return (artifact.python, "-u", "-c", _SERVER)

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return TF_CONFIG in the operator's key order; nothing for a job of one replica."""
        if len(addresses) == 1:
            return {}
        cluster: dict[str, list[str]] = {}
        for member in sorted(addresses):
            cluster.setdefault(member.role, []).append(str(addresses[member]))
        task = {"type": replica.role, "index": replica.index}
        config = {"cluster": cluster, "task": task, "environment": "cloud"}
        return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return a TFJob."""
        titles = {role: "PS" if role == "ps" else role.title() for role in self.roles}
        body: Manifest = {"tfReplicaSpecs": replica_specs(spec, pods, titles, "tensorflow")}
        if spec.cluster.success_policy is SuccessPolicy.ALL_WORKERS:
            body["successPolicy"] = "AllWorkers"
        return JobManifest("kubeflow.org/v1", "TFJob", "tfjobs", "tensorflow", body)
