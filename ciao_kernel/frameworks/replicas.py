"""The part of a manifest that all kinds of the training operator have in common."""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.model import JobSpec, Manifest, RestartPolicy
from ciao_kernel.plugins import DEFAULT_CONTAINER


def replica_specs(
    spec: JobSpec, pods: Mapping[str, Manifest], titles: Mapping[str, str], container: str
) -> Manifest:
    """Return the ReplicaSpecs of a job (training-operator, common_types.go).

    Args:
        spec: The roles; those of no replica are left out.
        pods: A pod template a role.
        titles: Each role as the kind spells it.
        container: The name that the kind wants its container to have.
    """
    # Never: PyTorchJob's own default is OnFailure, which runs a program with a typo for ever.
    policy = spec.cluster.restart_policy or RestartPolicy.NEVER
    return {
        titles[group.role]: {
            "replicas": group.count,
            "restartPolicy": str(policy),
            "template": _named(pods[group.role], container),
        }
        for group in spec.groups
        if group.count
    }


def _named(pod: Manifest, container: str) -> Manifest:
    first, *others = pod["spec"]["containers"]
    containers = [{"name": container, **first}, *others]
    # So that kubectl, and ciao, know which one to show where others are put beside it.
    notes = {**(pod["metadata"].get("annotations") or {}), DEFAULT_CONTAINER: container}
    return {
        "metadata": {**pod["metadata"], "annotations": notes},
        "spec": {**pod["spec"], "containers": containers},
    }
