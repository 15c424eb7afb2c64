"""Finds out whether a cluster is configured; each command asks, also where there is none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ciao_kernel.kube import kubeconfig

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder of a pod with the files of its service account."""


def configured(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether a cluster is configured: cheap, and sends no request.

    The result is also true if ``KUBECONFIG`` names a file that does not exist. A typo in the path
    then becomes an error in :func:`ciao_kernel.kube.access.load`, and does not turn a cluster job
    into a local job.
    """
    files = kubeconfig.named(environment) or kubeconfig.files(environment)
    return bool(files) or in_cluster(environment)


def in_cluster(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether this process is in a pod with a service account."""
    variables = os.environ if environment is None else environment
    return bool(variables.get("KUBERNETES_SERVICE_HOST")) and kubeconfig.is_file(ACCOUNT / "token")
