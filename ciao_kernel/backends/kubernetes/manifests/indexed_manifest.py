"""A cell as an Indexed Job with its headless Service: pure functions that return dicts.

One Job has all replicas of all roles, so that its controller alone stops everything after the first
failure or after the success of the deciding replica, even if nobody follows the job. Its pods have
one template, so a pod learns its role from its index: a ConfigMap has the variables of all
replicas, and a short program in front of the framework's command takes those of its index.
"""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.apis import JOB, replica_list
from ciao_kernel.backends.kubernetes.manifests.indexed_rules import (
    deciding,
    job_rules,
    launcher_role,
    possible_replicas,
    template_role,
)
from ciao_kernel.backends.kubernetes.manifests.indexed_start import program_template
from ciao_kernel.backends.kubernetes.manifests.rendering import (
    Pods,
    Rendered,
    Rendering,
    Request,
    time_to_live,
)
from ciao_kernel.backends.kubernetes.manifests.replica_variables import (
    LONGEST_LABEL,
    addresses,
    check_size,
    config_map,
)
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.model import CleanPolicy, Manifest, RestartPolicy
from ciao_kernel.plugins import JobManifest, Plan

KIND = JobManifest("batch/v1", "Job", "jobs", "program", {})
"""The kind of every Indexed Job."""
_UNKNOWN = (RestartPolicy.ALWAYS, RestartPolicy.EXIT_CODE)


def check(plan: Plan, settings: Settings) -> None:
    """Check that an Indexed Job can run a cell.

    Raises:
        SpecError: A directive needs the training operator.
    """
    spec, cluster = plan.spec, plan.spec.cluster
    if name := differing(plan):
        raise SpecError(
            f"%{name} differs between {' and '.join(_sized_roles(plan))}, but the replicas of an "
            "Indexed Job all have the same resources.",
            f"Write %{name} on a line of its own, for all roles; or use a cluster with the "
            "training operator.",
            directive=name,
        )
    if different := volumes_differ(plan):
        raise SpecError(
            f"%volume differs between {different}, but the replicas of an Indexed Job all have "
            "the same volumes.",
            "Write %volume on a line of its own, for all roles; or use a cluster with the training "
            "operator, or with Kubeflow Trainer and the right to create TrainingRuntimes.",
            directive="volume",
        )
    if cluster.restart_policy in _UNKNOWN and not spec.elastic:
        raise SpecError(
            f"an Indexed Job has no restart policy {cluster.restart_policy}.",
            "Write %restartPolicy=OnFailure or Never; or use a cluster with the training operator.",
            directive="restartPolicy",
        )
    if (spec.clean_policy or settings.clean_policy) is CleanPolicy.NONE:
        raise SpecError(
            "Kubernetes stops all replicas when an Indexed Job ends, so %cleanPolicy=none is not "
            "possible.",
            "Write %cleanPolicy=running; or use a cluster with the training operator.",
            directive="cleanPolicy",
        )
    possible = possible_replicas(plan)
    longest = f"{plan.name or plan.framework.name + '-xxxxx'}-999-{len(possible) - 1}"
    if len(longest) > LONGEST_LABEL:
        raise SpecError(
            f"the host names of the replicas, such as {longest}, would have more than "
            f"{LONGEST_LABEL} characters.",
            "Choose a shorter %name.",
            directive="name",
        )
    check_size(plan, addresses(longest.rpartition("-")[0], possible))


def _render(ask: Request, pods: Pods) -> Rendered:
    plan, job = ask.plan, ask.job.name
    possible = possible_replicas(plan)
    variables = config_map(plan, job, pods, addresses(job, possible))
    beside = (variables, *_services(job, len(possible)))
    return Rendered(KIND, _spec(ask, pods[template_role(plan)], variables), beside)


def _spec(ask: Request, pod: Manifest, variables: Manifest) -> Manifest:
    """Return the spec of the Job.

    Args:
        ask: The job to write.
        pod: Its only pod.
        variables: The result of :func:`.replica_variables.config_map`.
    """
    plan, job, settings = ask.plan, ask.job, ask.settings
    source: Manifest = {"configMap": {"name": variables["metadata"]["name"]}}
    template = program_template(plan, pod, source, ask.python, KIND.container)
    # By it and its index anybody can tell which replica a pod is.
    replicas = replica_list.render(possible_replicas(plan))
    template["metadata"]["annotations"][replica_list.ANNOTATION] = replicas
    template["spec"]["subdomain"] = job.name
    found: Manifest = {
        **job_rules(plan, len(job.replicas), KIND.container),
        "successPolicy": {"rules": [{"succeededIndexes": deciding(plan, job.replicas)}]},
        "ttlSecondsAfterFinished": time_to_live(plan, settings),
        "template": template,
    }
    if plan.spec.deadline is not None:
        found["activeDeadlineSeconds"] = plan.spec.deadline
    return found


def _services(job: str, replicas: int) -> tuple[Manifest, ...]:
    """Return the headless Service that gives each replica a host name: ``JOB-0.JOB``.

    Args:
        job: Name of the job.
        replicas: The most replicas that it may have. A single one needs no name.
    """
    if replicas == 1:
        return ()
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job},
        "spec": {
            "clusterIP": "None",
            # A replica connects to others before they are ready.
            "publishNotReadyAddresses": True,
            "selector": {JOB.job_label: job},
        },
    }
    return (made,)


def differing(plan: Plan) -> str:
    """Return the directive of a resource of which roles ask for different amounts; "" if none."""
    for name in ("cpu", "memory", "gpu"):
        if len({getattr(plan.spec.asks(role), name) for role in _sized_roles(plan)}) > 1:
            return name
    return ""


def volumes_differ(plan: Plan) -> str:
    """Return the roles that have other volumes than each other, as part of a sentence; or "".

    A launcher gets those of the others, as it gets their resources.
    """
    roles, apart = _sized_roles(plan), launcher_role(plan)
    own = [set(plan.spec.volumes_of(role)) for role in roles]
    if any(one != own[0] for one in own):
        return " and ".join(roles)
    if apart and not set(plan.spec.volumes_of(apart)) <= own[0]:
        return " and ".join((*roles, apart))
    return ""


def _sized_roles(plan: Plan) -> list[str]:
    """Return the roles whose resources count."""
    apart = launcher_role(plan)
    return [group.role for group in plan.spec.groups if group.count and group.role != apart]


RENDERING = Rendering(kind=lambda plan: KIND, render=_render, check=check, one_template=True)
