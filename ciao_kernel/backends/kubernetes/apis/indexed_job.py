"""Indexed Jobs of Kubernetes itself (``batch/v1``): they need no operator.

Facts: https://kubernetes.io/docs/concepts/workloads/controllers/job/ and Kubernetes,
pkg/controller/job/job_controller.go and pkg/apis/batch/validation. ``successPolicy`` exists by
default since Kubernetes 1.31. ``FailureTarget`` and ``SuccessCriteriaMet`` are final; ``Failed``
and ``Complete`` follow when the last pod has ended, which may take its whole grace period.
"""

from __future__ import annotations

import re

from ciao_kernel.backends.kubernetes.apis import replica_list
from ciao_kernel.backends.kubernetes.apis.api import Api
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.rights import Right
from ciao_kernel.model import Manifest, Replica

JOB_LABEL = "ciao-kernel/job"
"""Label of the pods that ciao sets itself; it is the same in every version of Kubernetes."""
INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of each pod with its index, set by the Job controller."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_OF_SERVER = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels that the server adds to the template of a Job."""


def is_pod(pod: Manifest) -> bool:
    """Return whether a pod belongs to an Indexed Job."""
    return get(pod, "metadata", "annotations", INDEX) is not None


def _searches(job: str, replica: Replica) -> tuple[dict[str, str], ...]:
    # The index depends on the roles before this one; whoever asks compares the replicas too.
    return ({JOB_LABEL: job},)


def _replica(pod: Manifest) -> Replica | None:
    index, found = get(pod, "metadata", "annotations", INDEX), _replicas(pod)
    if not isinstance(index, str) or not _NUMBER.fullmatch(index) or int(index) >= len(found):
        return None
    return found[int(index)]


def _replicas(item: Manifest) -> tuple[Replica, ...]:
    """Return the replicas in the order of their indexes, of a job or of one of its pods."""
    text = get(item, "metadata", "annotations", replica_list.ANNOTATION)
    try:
        return replica_list.parse(str(text or ""))
    except ValueError:
        return ()


def _roles(item: Manifest) -> dict[str, Manifest]:
    template = get(item, "spec", "template")
    policy = get(template, "spec", "restartPolicy")
    counts: dict[str, int] = {}
    for replica in _replicas(item):
        counts[replica.role] = counts.get(replica.role, 0) + 1
    completions = get(item, "spec", "completions")
    if len(counts) == 1 and isinstance(completions, int):
        counts = dict.fromkeys(counts, completions)  # someone may have scaled it
    return {
        role: {"replicas": count, "restartPolicy": policy, "template": template}
        for role, count in counts.items()
        if isinstance(template, dict)
    }


def _templates(item: Manifest) -> dict[str, Manifest]:
    template = get(item, "spec", "template")
    return {"replica": template} if isinstance(template, dict) else {}


def _policy(item: Manifest) -> Manifest:
    spec = get(item, "spec")
    return spec if isinstance(spec, dict) else {}


def _restart_policy(item: Manifest, role: str) -> str:
    never = get(item, "spec", "template", "spec", "restartPolicy") == "Never"
    return "Never" if never and get(item, "spec", "backoffLimit") == 0 else ""


def _needs_all_workers(item: Manifest) -> bool:
    rules = many(item, "spec", "successPolicy", "rules")
    return not any(str(rule.get("succeededIndexes")).isdecimal() for rule in rules)


def _as_submitted(spec: Manifest) -> Manifest:
    template = dict(spec["template"])
    labels = get(template, "metadata", "labels") or {}
    kept = {key: value for key, value in labels.items() if key not in _OF_SERVER}
    template["metadata"] = {**template["metadata"], "labels": kept}
    return {key: value for key, value in spec.items() if key != "selector"} | {"template": template}


JOB = Api(
    name="job",
    group="batch",
    version="v1",
    plurals=("jobs",),
    controller="the Job controller of Kubernetes",
    for_each_replica=lambda item: ("pods",),
    parents=lambda job, role: (),
    job_label=JOB_LABEL,
    failed=("FailureTarget", "Failed"),
    succeeded=("SuccessCriteriaMet", "Complete"),
    # Not the backoff limit: with a limit of 0 that message is about the first failed pod.
    given_up=("longer than specified deadline",),
    hopeless=(),
    rights=(Right("create", "services"), Right("get", "services")),
    missing="its API server does not serve batch/v1",
    install="Ask the administrator of the cluster.",
    searches=_searches,
    replica=_replica,
    roles=_roles,
    templates=_templates,
    policy=_policy,
    restart_policy=_restart_policy,
    needs_all_workers=_needs_all_workers,
    makes_pod_groups=False,
    replaces_disrupted=True,
    built_in=True,
    as_submitted=_as_submitted,
)
