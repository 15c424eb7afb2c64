"""What runs in the cluster as pods: CoreDNS and the training operator."""

import json
import time

from tests.cluster import operators, recipes
from tests.cluster.errors import ClusterError
from tests.cluster.layout import REGISTRY_ADDRESS, Layout
from tests.cluster.operators import Kubectl

DEPLOYMENTS = (("kube-system", "coredns"), ("kubeflow", "training-operator"))

# A block for each question, because within one `template` would answer before the others.
# NXDOMAIN for everything outside: nothing outside is reachable, and a lookup that waits for a
# server that is not there would take ten seconds to say so.
_COREFILE = """\
{domain}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 1
    }}
}}
registry.local:53 {{
    errors
    hosts {{
        {registry} registry.local
    }}
}}
.:53 {{
    errors
    health
    ready
    template IN ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def coredns(at: Layout) -> list[dict[str, object]]:
    """Return the manifests of CoreDNS (after kubernetes/cluster/addons/dns/coredns)."""
    labels = {"k8s-app": "kube-dns"}
    meta = {"name": "coredns", "namespace": "kube-system"}
    container = {
        "name": "coredns",
        "image": f"{at.registry}/coredns:1",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"containerPort": 53, "protocol": p} for p in ("UDP", "TCP")],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["endpoints", "services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:coredns",
            },
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"Corefile": _COREFILE.format(domain=at.domain, registry=REGISTRY_ADDRESS)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**meta, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": "coredns",
                        "priorityClassName": "system-cluster-critical",
                        "dnsPolicy": "Default",
                        "terminationGracePeriodSeconds": 1,
                        "containers": [container],
                        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
            "spec": {
                "selector": labels,
                "clusterIP": at.dns_service,
                "ports": [
                    {"name": p.lower(), "port": 53, "targetPort": 53, "protocol": p}
                    for p in ("UDP", "TCP")
                ],
            },
        },
    ]


def apply(at: Layout, kubectl: Kubectl) -> None:
    """Put CoreDNS and the operator into the cluster; both start while the node gets ready."""
    items = {"apiVersion": "v1", "kind": "List", "items": coredns(at)}
    kubectl("apply", "--server-side", "-f", "-", text=json.dumps(items))
    operators.put(at, kubectl, recipes.OPERATOR)


def wait(kubectl: Kubectl, seconds: float = 120) -> None:
    """Wait until names resolve and the operator's webhooks answer.

    Raises:
        ClusterError: not within the time; says what the pods wait for.
    """
    for namespace, name in DEPLOYMENTS:
        kubectl("rollout", "status", f"deployment/{name}", "-n", namespace,
                f"--timeout={seconds:.0f}s")  # fmt: skip
    deadline = time.monotonic() + seconds
    while True:
        # For some seconds after a start the API server cannot call the webhook yet.
        try:
            kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(_PROBE))
            return
        except ClusterError as error:
            if time.monotonic() > deadline:
                raise ClusterError(f"the operator's webhook does not answer: {error}") from error
        time.sleep(0.3)


_PROBE = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {
        "tfReplicaSpecs": {
            "Worker": {
                "template": {"spec": {"containers": [{"name": "tensorflow", "image": "tools"}]}}
            }
        }
    },
}
