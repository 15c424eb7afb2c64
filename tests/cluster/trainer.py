"""Kubeflow Trainer v2 with JobSet, beside the training operator, for the tests that ask for it."""

import contextlib
import json
import os
import time
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import Layout
from tests.cluster.operators import Kubectl
from tests.cluster.programs import programs
from tests.cluster.recipes import JOBSET, TRAINER

_MANAGERS = (
    # Namespace, Deployment, Secret of the webhook's certificate.
    ("jobset-system", "jobset-controller-manager", "jobset-webhook-server-cert"),
    (
        "kubeflow-system",
        "kubeflow-trainer-controller-manager",
        "kubeflow-trainer-webhook-cert",
    ),
)
_SECONDS = 120.0
_REFUSED = "must be created before the TrainJob"
"""What the webhook answers to a TrainJob whose runtime does not exist."""


def raised(at: Layout) -> bool:
    """Tell whether both were put into the cluster; one that is slow to answer is there too."""
    return _mark(at).exists()


def put(at: Layout, kubectl: Kubectl) -> None:
    """Put both into the cluster, and wait until their webhooks answer.

    Raises:
        ClusterError: not within the time.
    """
    folder = at.folder / "trainer"
    for name, content in (("jobset", _jobset(at)), ("trainer", _trainer(at))):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        below = Path(os.path.relpath(programs("trainer"), place))
        (place / "kustomization.yaml").write_text(json.dumps(content).replace("MODULE", str(below)))
        kubectl("apply", "--server-side", "-f", "-", text=json.dumps(_namespace(content)))
        kubectl("apply", "--server-side", "--force-conflicts", "-k", str(place))
    deadline = time.monotonic() + _SECONDS
    for namespace, name, secret in _MANAGERS:
        # Each pod makes its own certificate, and finds it in its volume only when the kubelet looks
        # again, up to a minute later. A pod that starts after the Secret is filled has it at once.
        while not kubectl("get", "secret", secret, "-n", namespace, "-o", "jsonpath={.data}"):
            _within(deadline, f"{name} makes no certificate")
        # Gone when this returns: what answers from now on stays.
        kubectl("delete", "pods", "--all", "-n", namespace)
    for namespace, name, _ in _MANAGERS:
        kubectl("rollout", "status", f"deployment/{name}", "-n", namespace, "--timeout=120s")
    while True:
        with contextlib.suppress(ClusterError):
            _probe(kubectl)
            break
        _within(deadline, "the webhooks of JobSet and Trainer do not answer")
    _mark(at).touch()


def _mark(at: Layout) -> Path:
    return at.folder / "trainer" / "raised"


def _within(deadline: float, why: str) -> None:
    if time.monotonic() > deadline:
        raise ClusterError(why)
    time.sleep(0.3)


def _probe(kubectl: Kubectl) -> None:
    kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(_PROBE))
    try:
        kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(_OTHER_PROBE))
    except ClusterError as error:
        if _REFUSED not in str(error):
            raise


_PROBE = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {
        "replicatedJobs": [
            {
                "name": "node",
                "template": {
                    "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}
                },
            }
        ]
    },
}
_OTHER_PROBE = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {"runtimeRef": {"name": "none", "kind": "TrainingRuntime"}},
}


def _namespace(content: dict[str, object]) -> dict[str, object]:
    meta = {"name": content["namespace"]}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _jobset(at: Layout) -> dict[str, object]:
    """Return a kustomization over JobSet's manifests as released; MODULE is their folder."""
    return _kustomization(
        at,
        "jobset-system",
        ["MODULE/config/default"],
        "us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset",
        JOBSET.name,
        "jobset-manager-config",
        {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "internalCertManagement": {"enable": True},
        },
    )


def _trainer(at: Layout) -> dict[str, object]:
    """Return one over Trainer's, without the JobSet that they would fetch from elsewhere."""
    base = "MODULE/manifests/base"
    name, secret = _MANAGERS[1][1:]
    return {
        **_kustomization(
            at,
            "kubeflow-system",
            [f"{base}/{one}" for one in ("crds", "manager", "rbac", "webhook")],
            "ghcr.io/kubeflow/trainer/trainer-controller-manager",
            TRAINER.name,
            "kubeflow-trainer-config",
            {
                "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
                "certManagement": {
                    "enable": True,
                    "webhookServiceName": name,
                    "webhookSecretName": secret,
                },
                "health": {
                    "healthProbeBindAddress": ":8081",
                    "readinessEndpointName": "readyz",
                    "livenessEndpointName": "healthz",
                },
                "webhook": {"port": 9443, "host": ""},
                "statusServer": {"port": 10443, "qps": 5, "burst": 10},
            },
        ),
        "secretGenerator": [{"name": secret, "options": {"disableNameSuffixHash": True}}],
    }


def _kustomization(
    at: Layout,
    namespace: str,
    resources: list[str],
    image: str,
    here: str,
    settings: str,
    config: dict[str, object],
) -> dict[str, object]:
    """Return what both have in common: one pod each, which asks for little and elects nobody."""
    name, _, tag = here.partition(":")
    # An election is lost by whoever is slow, and ends the program.
    text = json.dumps({"kind": "Configuration", "leaderElection": {"leaderElect": False}, **config})
    path = "/spec/template/spec"
    small = {"requests": {"cpu": "20m", "memory": "64Mi"}}
    probe = f"{path}/containers/0/readinessProbe"
    changes = [
        {"op": "add", "path": f"{path}/containers/0/resources", "value": small},
        {"op": "add", "path": f"{probe}/initialDelaySeconds", "value": 0},
        {"op": "add", "path": f"{probe}/periodSeconds", "value": 1},
        {"op": "add", "path": f"{path}/terminationGracePeriodSeconds", "value": 1},
    ]
    data = {"controller_manager_config.yaml": text}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": namespace,
        "resources": resources,
        "images": [{"name": image, "newName": f"{at.registry}/{name}", "newTag": tag}],
        "patches": [
            {"target": {"kind": "Deployment"}, "patch": json.dumps(changes)},
            {
                "target": {"kind": "ConfigMap", "name": settings},
                "patch": json.dumps([{"op": "replace", "path": "/data", "value": data}]),
            },
        ],
    }
