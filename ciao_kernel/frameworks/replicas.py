"""The part of a manifest that all job kinds of the training operator share."""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.model import JobSpec, Manifest, RestartPolicy
from ciao_kernel.plugins import DEFAULT_CONTAINER


def replica_specs(
    spec: JobSpec, pods: Mapping[str, Manifest], titles: Mapping[str, str], container: str
) -> Manifest:
    """Return the ReplicaSpecs of a job (training-operator, common_types.go).

    Args:
        spec: The roles; roles without replicas are left out.
        pods: A pod template for each role.
        titles: The spelling of each role in this kind.
        container: The container name that this kind requires.
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
    # kubectl and ciao show this container if others are added to the pod.
    notes = {**(pod["metadata"].get("annotations") or {}), DEFAULT_CONTAINER: container}
    return {
        "metadata": {**pod["metadata"], "annotations": notes},
        "spec": {**pod["spec"], "containers": containers},
    }
