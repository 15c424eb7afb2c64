"""Creates the pod of a kernel. Enterprise Gateway and gateway_provisioners run it for each kernel.

The pod meets Pod Security's level ``restricted``. From the server's environment it gets only
variables that begin with ``KERNEL_`` or ``CIAO_``. This program runs on the gateway's Python, not
on the kernel's.
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
"""Prefixes of the variables that are passed to the pod."""

REQUESTS = {"cpu": "100m", "memory": "256Mi"}
"""Default requests of a kernel. Without any requests it would be the last to get a processor, and
the first to be evicted."""

GRACE = 5
"""Seconds from SIGTERM to SIGKILL; the kernel needs at most this time."""


ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

TIMEOUT = 30
"""Seconds that the API server may take to answer."""


def main(argv: Sequence[str] | None = None) -> None:
    """Create the pod; errors appear in the gateway's log."""
    body = pod(arguments(argv), os.environ)
    if host := os.environ.get("KUBERNETES_SERVICE_HOST"):
        by_account(body, host, os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    else:
        by_kubeconfig(body)


def by_account(body: dict[str, Any], host: str, port: str) -> None:
    """Create the pod with the service account of the gateway's own pod.

    Uses plain HTTP: importing the client library takes longer than the rest of a kernel's start.

    Raises:
        SystemExit: The API server refuses the pod; contains the reason.
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
    # Python 3.13 requires extensions that the authorities of many clusters lack. kubectl does not.
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
    """Create the pod as the kubeconfig's user, if gateway_provisioners runs outside the cluster."""
    from kubernetes import client, config

    load: Any = config.load_kube_config
    load()
    api: Any = client.CoreV1Api()
    api.create_namespaced_pod(body["metadata"]["namespace"], body)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the kernelspec's command line; ignore options that other gateway releases add."""
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
        given: Options from the gateway's command line.
        environment: Environment of this process; the gateway adds the user's variables to it.
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
            **ids(environment),
            # Else each start lets the group write to all files, and ciao trusts none of them.
            "fsGroupChangePolicy": "OnRootMismatch",
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


def ids(environment: Mapping[str, str]) -> dict[str, int]:
    """Return the user and the groups of the pod.

    OpenShift chooses the user and ``fsGroup`` from the ranges of the namespace, and refuses others.
    An empty variable for the latter leaves both to it: Enterprise Gateway accepts no empty user.
    """
    found = {"runAsGroup": int(environment.get("KERNEL_GID", 100))}
    if group := environment.get("KERNEL_FS_GROUP", "100"):
        found |= {"runAsUser": int(environment.get("KERNEL_UID", 1000)), "fsGroup": int(group)}
    return found


def variables(given: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the pod's environment: variables for the image's start script, and the user's own."""
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
    """Return requests and limits from the gateways' variables, such as ``KERNEL_CPUS_LIMIT``.

    An amount without a limit is the limit too, as with ``%cpu`` and ``%memory``.
    """
    names = {"cpu": "KERNEL_CPUS", "memory": "KERNEL_MEMORY", "nvidia.com/gpu": "KERNEL_GPUS"}
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for what, name in names.items():
        request, limit = environment.get(name, ""), environment.get(f"{name}_LIMIT", "")
        # Otherwise the API server refuses each request for GPUs, and any request above the default
        # limit that a LimitRange adds.
        limit = limit or request
        if not limit:
            request = REQUESTS.get(what, "")
        for kind, amount in (("requests", request), ("limits", limit)):
            if amount:
                found[kind][what] = amount
    return {kind: amounts for kind, amounts in found.items() if amounts}


def objects(environment: Mapping[str, str], name: str) -> list[Any]:
    """Return the list that a variable holds, as YAML or JSON.

    Raises:
        ValueError: The variable contains something else.
    """
    text = environment.get(name)
    if not text:
        return []
    # Imported only if needed: the import takes a large part of this program's time.
    import yaml

    found = yaml.safe_load(text)
    if not isinstance(found, list):
        raise ValueError(f"{name} is no list")
    return found


if __name__ == "__main__":
    main()
