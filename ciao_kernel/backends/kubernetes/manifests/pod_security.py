"""Pods that Pod Security accepts at the level ``restricted``."""

from __future__ import annotations

import copy
from dataclasses import replace

from ciao_kernel.backends.kubernetes.apis.template_holder import pod_templates
from ciao_kernel.backends.kubernetes.manifests import volumes
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import mapping


def secured(made: Objects) -> Objects:
    """Return the objects with pods that Pod Security accepts at the level ``restricted``.

    Not the default: an image whose user is root would not start, and other images could not
    write files of other users.

    Raises:
        SpecError: A runtime of the cluster does not allow that.
    """
    body = copy.deepcopy(made.holder)
    for pod in pod_templates(body).values():
        spec = pod["spec"]
        # What a %podPatch sets stays, such as a user for an image that has root, or the group that
        # a claim's files have already. Pod Security judges it.
        spec["securityContext"] = {
            "seccompProfile": {"type": "RuntimeDefault"},
            **volumes.group(spec),
            **mapping(spec.get("securityContext")),
            "runAsNonRoot": True,
        }
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            own = mapping(container.get("securityContext"))
            container["securityContext"] = {
                **own,
                "allowPrivilegeEscalation": False,
                "capabilities": {**mapping(own.get("capabilities")), "drop": ["ALL"]},
            }
    return replace(made.with_holder(body), secured=True)
