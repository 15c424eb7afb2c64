"""Creates the pod of a kernel. Enterprise Gateway and gateway_provisioners run it for each kernel.

The pod meets Pod Security's level ``restricted``. Of the server's environment it gets what begins
with ``KERNEL_`` or ``CIAO_``, and nothing else. It runs on the gateway's Python, not on the
kernel's.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PASSED_ON = ("KERNEL_", "CIAO_")
"""How the names of variables begin that reach the pod."""

REQUESTS = {"cpu": "100m", "memory": "256Mi"}
"""What a kernel asks for whose user says nothing: with nothing at all it would be the last to get a
processor, and the first to be evicted."""

GRACE = 5
"""Seconds from SIGTERM to SIGKILL, as the kernel itself needs at most."""


ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

TIMEOUT = 30
"""Seconds that the API server may take to answer."""


def main(argv: Sequence[str] | None = None) -> None:
    """Create the pod; an error ends in the gateway's log."""
    body = pod(arguments(argv), os.environ)
    if host := os.environ.get("KUBERNETES_SERVICE_HOST"):
        by_account(body, host, os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    else:
        by_kubeconfig(body)


def by_account(body: dict[str, Any], host: str, port: str) -> None:
    """Create it as the pod in which the gateway runs.

    By plain HTTP: to import the client library takes longer than all the rest of a kernel's start.

    Raises:
        SystemExit: The API server refuses it; says why.
    """
    name = f"[{host}]" if ":" in host else host
    request = urllib.request.Request(
        f"https://{name}:{port}/api/v1/namespaces/{body['metadata']['namespace']}/pods",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    # Python 3.13 asks for extensions that the authorities of many clusters lack. kubectl does not.
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # No proxy: the API server is in the cluster.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
    )
    try:
        with opener.open(request, timeout=TIMEOUT):
            pass
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        raise SystemExit(f"the kernel's pod was not created: {error.code} {said}") from None


def by_kubeconfig(body: dict[str, Any]) -> None:
    """Create it as the kubeconfig's user, where gateway_provisioners runs outside the cluster."""
    from kubernetes import client, config

    load: Any = config.load_kube_config
    load()
    api: Any = client.CoreV1Api()
    api.create_namespaced_pod(body["metadata"]["namespace"], body)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the kernelspec's command line; what other releases of the gateways add is left alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel-id", required=True)
    parser.add_argument("--port-range", required=True)
    parser.add_argument("--response-address", required=True)
    parser.add_argument("--public-key", required=True)
    parser.add_argument("--transport-encryption", default="")
    parser.add_argument("--kernel-class-name", default="ciao_kernel.kernel.CiaoKernel")
    return parser.parse_known_args(argv)[0]


def pod(given: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the pod of a kernel.

    Args:
        given: What the gateway says on the command line.
        environment: Of this process; the gateway puts into it what the user chose.
    """
    container = {
        "name": "kernel",
        "image": environment["KERNEL_IMAGE"],
        "env": [{"name": k, "value": v} for k, v in sorted(variables(given, environment).items())],
        "resources": resources(environment),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if folder := environment.get("KERNEL_WORKING_DIR"):
        container["workingDir"] = folder
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": environment["KERNEL_SERVICE_ACCOUNT_NAME"],
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": int(environment.get("KERNEL_UID", 1000)),
            "runAsGroup": int(environment.get("KERNEL_GID", 100)),
            "fsGroup": 100,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    if volumes := objects(environment, "KERNEL_VOLUMES"):
        spec["volumes"] = volumes
        container["volumeMounts"] = objects(environment, "KERNEL_VOLUME_MOUNTS")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": environment["KERNEL_POD_NAME"],
            "namespace": environment["KERNEL_NAMESPACE"],
            # The gateways find the pod by these two.
            "labels": {"component": "kernel", "kernel_id": given.kernel_id},
        },
        "spec": spec,
    }


def variables(given: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the pod's environment: what the image's start script asks for, and the user's own."""
    found = {name: value for name, value in environment.items() if name.startswith(PASSED_ON)}
    found |= {
        "KERNEL_ID": given.kernel_id,
        "KERNEL_LANGUAGE": "python",
        "KERNEL_CLASS_NAME": given.kernel_class_name,
        "PORT_RANGE": given.port_range,
        "RESPONSE_ADDRESS": given.response_address,
        "PUBLIC_KEY": given.public_key,
    }
    if given.transport_encryption:
        found["TRANSPORT_ENCRYPTION"] = given.transport_encryption
    return found


def resources(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return requests and limits, as users of the gateways name them: ``KERNEL_CPUS_LIMIT``."""
    names = {"cpu": "KERNEL_CPUS", "memory": "KERNEL_MEMORY", "nvidia.com/gpu": "KERNEL_GPUS"}
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for what, name in names.items():
        request, limit = environment.get(name, ""), environment.get(f"{name}_LIMIT", "")
        if what == "nvidia.com/gpu":
            # The API server takes no request for GPUs without a limit.
            limit = limit or request
        if not limit:
            request = request or REQUESTS.get(what, "")
        for kind, amount in (("requests", request), ("limits", limit)):
            if amount:
                found[kind][what] = amount
    return {kind: amounts for kind, amounts in found.items() if amounts}


def objects(environment: Mapping[str, str], name: str) -> list[Any]:
    """Return the list that a variable holds, as YAML or JSON.

    Raises:
        ValueError: It holds something else.
    """
    text = environment.get(name)
    if not text:
        return []
    # Only where it is needed: the import is a good part of this program's time.
    import yaml

    found = yaml.safe_load(text)
    if not isinstance(found, list):
        raise ValueError(f"{name} is no list")
    return found


if __name__ == "__main__":
    main()
