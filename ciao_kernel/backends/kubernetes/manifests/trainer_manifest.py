"""A cell as a TrainJob with its own TrainingRuntime: pure functions that return dicts.

The runtime has a replicatedJob for each role, so roles may ask for different resources, and each
becomes one Indexed Job of a JobSet. The pods learn their variables by role and index, as those of
Indexed Jobs do (:mod:`.indexed_manifest`): ciao needs none of Trainer's policies, which exist for
some frameworks only, and in some versions only.
"""

from __future__ import annotations

from collections.abc import Iterable

from ciao_kernel.backends.kubernetes.apis import TRAINER, job_metadata
from ciao_kernel.backends.kubernetes.apis.trainer import ALL_WORKERS, RESTARTS, RULES, RUNTIME
from ciao_kernel.backends.kubernetes.manifests import (
    gangs,
    indexed_rules,
    indexed_start,
    replica_variables,
)
from ciao_kernel.backends.kubernetes.manifests.indexed_rules import never
from ciao_kernel.backends.kubernetes.manifests.rendering import (
    Pods,
    Rendered,
    Rendering,
    Request,
    refuse_ttl,
)
from ciao_kernel.backends.kubernetes.manifests.replica_variables import LONGEST_LABEL, PORT
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.model import (
    Address,
    CleanPolicy,
    Manifest,
    Replica,
    ReplicaGroup,
    RestartPolicy,
)
from ciao_kernel.plugins import JobManifest, Plan, endless_roles

KIND = JobManifest(f"{TRAINER.group}/{TRAINER.version}", "TrainJob", "trainjobs", "node", {})
"""The kind of every TrainJob."""


def check(plan: Plan, settings: Settings) -> None:
    """Check that a TrainJob can run a cell.

    Raises:
        SpecError: A directive does not fit.
    """
    cluster = plan.spec.cluster
    refuse_ttl(
        plan, "a TrainJob has no time to live: Trainer would run a failed one again after it."
    )
    unknown = (RestartPolicy.ALWAYS, RestartPolicy.EXIT_CODE)
    if cluster.restart_policy in unknown and not plan.spec.elastic:
        raise SpecError(
            f"a TrainJob has no restart policy {cluster.restart_policy}.",
            "Write %restartPolicy=OnFailure or Never; or use a cluster with the training operator.",
            directive="restartPolicy",
        )
    if (plan.spec.clean_policy or settings.clean_policy) is CleanPolicy.NONE:
        raise SpecError(
            "JobSet stops all replicas when a TrainJob ends, so %cleanPolicy=none is not possible.",
            "Write %cleanPolicy=running; or use a cluster with the training operator.",
            directive="cleanPolicy",
        )
    name = plan.name or f"{plan.framework.name}-xxxxx"
    ends = {group.role: f"-{group.role}-0-{group.count - 1}-xxxxx" for group in _groups(plan)}
    # JobSet checks the names of pods when Trainer creates it: too late. A second run of that name
    # gets a number.
    most = LONGEST_LABEL - max(map(len, ends.values())) - len("-999")
    if len(name) > most:
        raise SpecError(
            f"the names of a TrainJob's pods, such as {name}{max(ends.values(), key=len)}, have "
            "at most 63 characters.",
            f"Choose a %name with at most {most} characters.",
            directive="name",
        )
    replica_variables.check_size(plan, addresses(f"{name}-999", plan.spec.replicas()))


def _render(ask: Request, pods: Pods) -> Rendered:
    variables = _config_map(ask.plan, ask.job.name)
    runtime = gangs.runtime(_runtime(ask, pods, variables), ask.settings)
    name = runtime["metadata"]["name"]
    spec = {"runtimeRef": {"apiGroup": TRAINER.group, "kind": RUNTIME, "name": name}}
    return Rendered(KIND, spec, (variables, runtime), _rules(ask.plan))


def _rules(plan: Plan) -> dict[str, str]:
    """Return the annotation of the TrainJob with the rules that only its runtime has."""
    words = [] if never(plan) else [RESTARTS]
    words += [ALL_WORKERS] if indexed_rules.needs_all_workers(plan) else []
    return {RULES: " ".join(words)} if words else {}


def _config_map(plan: Plan, job: str) -> Manifest:
    """Return the ConfigMap with the variables of all replicas; metadata has only its name.

    Raises:
        SpecError: They are too large.
    """
    data = {
        _key(role, file): text
        for role in (group.role for group in _groups(plan))
        for file, text in _files(plan, job, role).items()
    }
    return replica_variables.variables(job, data)


def _runtime(ask: Request, pods: Pods, variables: Manifest) -> Manifest:
    """Return the TrainingRuntime of a job; metadata has only its name.

    Args:
        ask: The job to write.
        pods: The pod of each role.
        variables: The result of :func:`_config_map`.
    """
    plan = ask.plan
    parts = [
        {
            "name": group.role,
            "replicas": 1,
            "template": {
                "spec": {
                    **_rules_of(plan, group.role, group.count),
                    "template": _template(ask, group.role, pods[group.role], variables),
                }
            },
        }
        for group in _groups(plan)
    ]
    # Without ttlSecondsAfterFinished: Trainer would make the deleted JobSet of a failed job again
    # (github.com/kubeflow/trainer, issues 3737 and 3779).
    made: Manifest = {
        "successPolicy": {"operator": "All", "targetReplicatedJobs": _deciding(plan)},
        # Trainer adds the host names: JOB-ROLE-0-INDEX.JOB.
        "replicatedJobs": parts,
    }
    return {
        "apiVersion": KIND.api_version,
        "kind": RUNTIME,
        # Its name may not be that of an earlier job's runtime, which may still be ending.
        "metadata": {"name": f"{ask.job.name}-{ask.run[:8]}"},
        "spec": {"template": {"spec": made}},
    }


def addresses(job: str, replicas: Iterable[Replica]) -> dict[Replica, Address]:
    """Return the address of each replica; a single one needs no name."""
    found = tuple(replicas)
    if len(found) == 1:
        return {found[0]: Address("127.0.0.1", PORT)}
    return {one: Address(f"{job}-{one.role}-0-{one.index}.{job}", PORT) for one in found}


def _groups(plan: Plan) -> list[ReplicaGroup]:
    return [group for group in plan.spec.groups if group.count]


def _deciding(plan: Plan) -> list[str]:
    """Return the roles whose success is the success of the job."""
    decider = plan.framework.decider(plan.spec)
    if decider is not None:
        return [decider.role]
    roles = endless_roles(plan.framework, plan.spec.serve)
    return [one.role for one in _groups(plan) if one.role not in roles]


def _rules_of(plan: Plan, role: str, count: int) -> Manifest:
    """Return the rules of the Job of a role."""
    decider = plan.framework.decider(plan.spec)
    # The failure of a Job is the failure of its JobSet.
    found = indexed_rules.job_rules(plan, count, KIND.container)
    if plan.spec.deadline is not None:
        found["activeDeadlineSeconds"] = plan.spec.deadline
    all_workers = indexed_rules.needs_all_workers(plan) and role == "worker"
    if decider is not None and decider.role == role and count > 1 and not all_workers:
        found["successPolicy"] = {"rules": [{"succeededIndexes": str(decider.index)}]}
    return found


def _key(role: str, file: str) -> str:
    # A role has no dot.
    return f"{role}.{file}"


def _files(plan: Plan, job: str, role: str) -> dict[str, str]:
    replicas = plan.spec.replicas()
    own = [one for one in replicas if one.role == role]
    return replica_variables.files(plan, own, addresses(job, replicas))


def _template(ask: Request, role: str, pod: Manifest, variables: Manifest) -> Manifest:
    prefix = _key(role, "")
    items = [
        {"key": key, "path": key.removeprefix(prefix)}
        for key in variables["data"]
        if key.startswith(prefix)
    ]
    source: Manifest = {"configMap": {"name": variables["metadata"]["name"], "items": items}}
    found = indexed_start.program_template(ask.plan, pod, source, ask.python, KIND.container)
    # The pod's owner is a Job of a JobSet: it does not tell whose pod it is.
    found["metadata"]["annotations"][job_metadata.RUN] = ask.run
    return found


RENDERING = Rendering(kind=lambda plan: KIND, render=_render, check=check)
