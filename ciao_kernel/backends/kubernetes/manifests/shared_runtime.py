"""A cell as a TrainJob with a runtime of the cluster: pure functions that return dicts.

For users who may create TrainJobs but no TrainingRuntimes; administrators install the runtimes from
``deploy/trainer``. Such a runtime has what a TrainJob cannot change: that a failed program is not
started again, and which success ends the job. A TrainJob can set the number of pods of one
replicatedJob only. So all replicas are pods of one Indexed Job, as they are without Trainer
(:mod:`.indexed_manifest`), in an order in which the deciding one is the first: the runtime can name
it by its index. The rest is in :mod:`.runtime_overrides`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from ciao_kernel.backends.kubernetes.apis import TRAINER, job_metadata, replica_list
from ciao_kernel.backends.kubernetes.apis.trainer import ANCESTOR, CONTAINER, SHARED, STEP
from ciao_kernel.backends.kubernetes.manifests import (
    indexed_manifest,
    indexed_rules,
    indexed_start,
    replica_variables,
    runtime_overrides,
    trainer_manifest,
)
from ciao_kernel.backends.kubernetes.manifests.indexed_rules import never
from ciao_kernel.backends.kubernetes.manifests.job_objects import Shared
from ciao_kernel.backends.kubernetes.manifests.rendering import Pods, Rendered, Rendering, Request
from ciao_kernel.backends.kubernetes.manifests.replica_variables import LONGEST_LABEL
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.config import Settings
from ciao_kernel.model import Address, CleanPolicy, JobSpec, Manifest, Replica
from ciao_kernel.plugins import Framework, Plan, endless_roles

WORKDIR = "/ciao"
"""Folder of the program, in which all builders put it."""


def name(framework: Framework) -> str:
    """Return the name of the runtime for the jobs of a framework."""
    return f"ciao-{framework.name}"


def runtime(framework: Framework) -> Manifest:
    """Return the ClusterTrainingRuntime for the jobs of a framework, as ``deploy/`` has it."""
    job: Manifest = {
        "completions": 1,
        "parallelism": 1,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "template": _template(),
    }
    if _decides(framework):
        job["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    part = {
        "name": STEP,
        "replicas": 1,
        "template": {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": job},
    }
    success = {"operator": "All", "targetReplicatedJobs": [STEP]}
    return {
        "apiVersion": f"{TRAINER.group}/{TRAINER.version}",
        "kind": SHARED,
        "metadata": {
            "name": name(framework),
            "labels": {"trainer.kubeflow.org/framework": framework.name},
        },
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"successPolicy": success, "replicatedJobs": [part]}},
        },
    }


def obstacle(plan: Plan, settings: Settings, fields: Fields, *, restricted: bool) -> str:
    """Return what of a cell its TrainJob could not change in a runtime; "" if it can all.

    Args:
        plan: The program to run, with its options.
        settings: Grace period and policies of cells that name none.
        fields: What the cluster's TrainJobs have.
        restricted: Whether the namespace refuses pods that do not give up all privileges.
    """
    spec, cluster = plan.spec, plan.spec.cluster
    ends = endless_roles(plan.framework, spec.serve) & {one.role for one in spec.groups}
    decider = plan.framework.decider(spec)
    several = len(spec.replicas()) > 1
    by_all = several and (indexed_rules.needs_all_workers(plan) or (decider is None and ends))
    base = _template()["spec"]["terminationGracePeriodSeconds"]
    found = {
        "an elastic job": spec.elastic,
        "%restartPolicy": not never(plan),
        "%ttl": cluster.ttl is not None,
        "%cleanPolicy=none": (spec.clean_policy or settings.clean_policy) is CleanPolicy.NONE,
        "%envsecret": bool(cluster.env_secrets),
        "%serviceAccount": bool(cluster.service_account),
        "%priorityClass": bool(cluster.priority_class),
        "%podPatch": bool(cluster.pod_patch),
        "%warm": spec.warm is not None,
        "%output of files": bool(spec.output_paths),
        "%tensorboard": spec.tensorboard is not None,
        "different resources for each role": indexed_manifest.differing(plan) != "",
        "different volumes for each role": indexed_manifest.volumes_differ(plan) != "",
        "a success of several replicas that is not that of all": bool(by_all)
        or (decider is not None) != _decides(plan.framework),
        "%deadline before Trainer 2.2": spec.deadline is not None and not fields.deadline,
        "a longer grace period before Trainer 2.3": not fields.grace
        and round(settings.linger + settings.grace(spec.grace)) > base,
        "Pod Security's level restricted before Trainer 2.2": restricted and not fields.patches,
        "a name of that length": _is_too_long(plan),
    }
    return next((what for what, holds in found.items() if holds), "")


def _check(plan: Plan, _: Settings) -> None:
    # `obstacle` has checked the directives.
    replica_variables.check_size(plan, addresses(f"{plan.name or 'x' * 20}-999", order(plan)))


def order(plan: Plan) -> tuple[Replica, ...]:
    """Return the replicas in the order of their pods: the role of the deciding one comes first."""
    decider = plan.framework.decider(plan.spec)
    found = plan.spec.replicas()
    first = [one for one in found if decider and one.role == decider.role]
    return (*first, *(one for one in found if one not in first))


def addresses(job: str, replicas: Iterable[Replica]) -> dict[Replica, Address]:
    """Return the address of each replica; a single one needs no name.

    Args:
        job: Name of the job.
        replicas: The result of :func:`order`.
    """
    return replica_variables.addresses(job, replicas, f"{job}-{STEP}-0")


def _render(ask: Request, pods: Pods) -> Rendered:
    plan, job = ask.plan, ask.job.name
    variables = replica_variables.config_map(plan, job, pods, addresses(job, order(plan)))
    sketched = _sketch(ask, pods[indexed_rules.template_role(plan)], variables)
    assert ask.fields is not None  # otherwise the job brings its own runtime
    shared = Shared(sketched, functools.partial(spec, framework=plan.framework, fields=ask.fields))
    return Rendered(trainer_manifest.KIND, shared.spec(), (variables,), shared=shared)


def _sketch(ask: Request, pod: Manifest, variables: Manifest) -> Manifest:
    """Return the runtime that the job would have if it brought its own; nobody creates it.

    Checks read and change its pod template as they do that of other jobs; :func:`spec` makes a
    TrainJob of it.

    Args:
        ask: The job to write.
        pod: Its only pod.
        variables: The result of :func:`.replica_variables.config_map`.
    """
    plan = ask.plan
    source: Manifest = {"configMap": {"name": variables["metadata"]["name"]}}
    template = indexed_start.program_template(plan, pod, source, ask.python, CONTAINER)
    template["metadata"]["annotations"] |= {
        # By it and its index anybody can tell which replica a pod is.
        replica_list.ANNOTATION: replica_list.render(order(plan)),
        # The pod's owner is a Job of a JobSet: it does not tell whose pod it is.
        job_metadata.RUN: ask.run,
    }
    made = runtime(plan.framework)
    (part,) = made["spec"]["template"]["spec"]["replicatedJobs"]
    count = len(ask.job.replicas)
    part["template"]["spec"] |= {
        "completions": count,
        "parallelism": count,
        "template": template,
    }
    return made


def spec(sketched: Manifest, framework: Framework, fields: Fields) -> Manifest:
    """Return the spec of the TrainJob.

    Args:
        sketched: The result of :func:`_sketch`, perhaps changed since.
        framework: The job's framework.
        fields: What the cluster's TrainJobs have.

    Raises:
        SpecError: A field of the pods cannot be set.
    """
    (part,) = sketched["spec"]["template"]["spec"]["replicatedJobs"]
    job = part["template"]["spec"]
    return runtime_overrides.spec(
        job["template"], _template(), name(framework), job["completions"], fields
    )


def _decides(framework: Framework) -> bool:
    """Return whether one replica decides about the jobs of a framework; otherwise all do."""
    return framework.decider(JobSpec(framework.name)) is not None


def _is_too_long(plan: Plan) -> bool:
    longest = f"{plan.name or f'{plan.framework.name}-xxxxx'}-999-{STEP}-0-"
    return len(f"{longest}{len(plan.spec.replicas()) - 1}-xxxxx") > LONGEST_LABEL


def _template() -> Manifest:
    """Return the pod template of a runtime: what every pod of ciao has. Jobs name their image."""
    plain = Settings()
    container: Manifest = {
        "name": CONTAINER,
        "workingDir": WORKDIR,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": {"sleep": {"seconds": int(plain.linger)}}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    return {
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": round(plain.linger + plain.stop_grace),
            "enableServiceLinks": False,
            "shareProcessNamespace": True,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        }
    }


RENDERING = Rendering(
    kind=lambda plan: trainer_manifest.KIND, render=_render, check=_check, one_template=True
)
