"""How Enterprise Gateway creates a namespace for a kernel: with a level of Pod Security.

Enterprise Gateway 3.3 sets no level on these namespaces and has no option for it. kernel.json names
the class :class:`Proxy`, and the gateway finds this module by its PYTHONPATH.
"""

from __future__ import annotations

import json
from typing import Any

from enterprise_gateway.services.processproxies.k8s import KubernetesProcessProxy
from kubernetes import client

LEVEL = "baseline"
"""Kernels meet ``restricted`` too, but the images of jobs may run as root."""


class Proxy(KubernetesProcessProxy):
    """The gateway's own class, except for the namespace that it creates."""

    def _create_kernel_namespace(self, service_account_name: str) -> str:
        """Create the namespace, and bind the kernels' role there; return its name.

        Overrides a method of Enterprise Gateway 3.3.
        """
        name: str = self.kernel_pod_name
        core = client.CoreV1Api()
        try:
            core.create_namespace(body=namespace(name, self.kernel_id))
        except client.ApiException as error:
            # A kernel that is restarted keeps its namespace, and the role in it.
            if error.status != 409 or not self.kernel_manager.restarting:
                self._fail(f"the namespace {name} was not created: {words(error)}")
            self.delete_kernel_namespace = True
            return name
        self.delete_kernel_namespace = True
        try:
            self._create_role_binding(name, service_account_name)
        except Exception as error:
            core.delete_namespace(name=name)
            self._fail(f"no role was bound in the namespace {name}: {words(error)}")
        return name

    def _fail(self, reason: str) -> None:
        """End the start of the kernel with this reason."""
        self.log_and_raise(http_status_code=500, reason=reason)


def namespace(name: str, kernel: str) -> dict[str, Any]:
    """Return the namespace of a kernel.

    Args:
        name: Of the namespace.
        kernel: The kernel's id.
    """
    labels = {
        # Enterprise Gateway's own labels, by which policies and ciao find its namespaces.
        "app": "enterprise-gateway",
        "component": "kernel",
        "kernel_id": kernel,
        "pod-security.kubernetes.io/enforce": LEVEL,
    }
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def words(error: Exception) -> str:
    """Return the API server's message in one line: an HTTP reason has no others."""
    try:
        text = json.loads(getattr(error, "body", None) or "")["message"]
    except (ValueError, KeyError, TypeError):
        text = error
    return " ".join(str(text).split())
