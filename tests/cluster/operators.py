"""The training operator: the usual release, and an older one in its place for a while."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.cluster.layout import Layout
from tests.cluster.programs import programs
from tests.cluster.recipes import OPERATOR, Image

Kubectl = Callable[..., str]

_NAMESPACE = "kubeflow"
_PODS = "control-plane=kubeflow-training-operator"
_WEBHOOKS = "validatingwebhookconfiguration/validator.training-operator.kubeflow.org"


def put(at: Layout, kubectl: Kubectl, image: Image) -> list[str]:
    """Put the operator of an image into the cluster; return the names of its objects.

    Nobody waits for it here: addons.wait does.
    """
    folder = at.folder / "operator"
    folder.mkdir(exist_ok=True)
    ((module, _, _),) = image.programs
    manifests = Path(os.path.relpath(programs(module) / "manifests", folder))
    content = json.dumps(kustomization(at, image, manifests))
    (folder / "kustomization.yaml").write_text(content)
    # Server-side: the definitions are too big for the annotation of a client-side apply. By
    # force: the number of its pods may be another's, such as a test's that took them away.
    return kubectl(
        "apply", "--server-side", "--force-conflicts", "-k", str(folder), "-o", "name"
    ).split()  # fmt: skip


def replace(at: Layout, kubectl: Kubectl, image: Image) -> None:
    """Put the operator of an image in the place of whichever release is there, or half there.

    What only another release has goes, with its jobs; all other jobs stay.
    """
    _mark(at).parent.mkdir(exist_ok=True)
    _mark(at).touch()
    kubectl("scale", "deployment/training-operator", "--replicas=0", "-n", _NAMESPACE)
    kubectl("wait", "pod", "-l", _PODS, "-n", _NAMESPACE, "--for=delete", "--timeout=60s")
    # An apply cannot take a webhook off its list: the certificate in it is the operator's.
    kubectl("delete", _WEBHOOKS, "--ignore-not-found")
    names = put(at, kubectl, image)
    kinds = kubectl("get", "customresourcedefinitions", "-o", "name").split()
    # Their group is kubeflow.org; trainer.kubeflow.org has other owners.
    own = [kind for kind in kinds if kind.rpartition("/")[2].partition(".")[2] == "kubeflow.org"]
    if other := [kind for kind in own if kind not in names]:
        kubectl("delete", *other)
    if image == OPERATOR:
        _mark(at).unlink()


def replaced(at: Layout) -> bool:
    """Tell whether another release than the usual one is there, or half there."""
    return _mark(at).exists()


def _mark(at: Layout) -> Path:
    return at.folder / "operator" / "replaced"


def kustomization(at: Layout, image: Image, manifests: Path) -> dict[str, object]:
    """Return a kustomization over the operator's own manifests, for a folder beside them.

    It changes what has to differ here: images that this registry has, and probes that ask each
    second instead of every fifteen.

    Args:
        at: the cluster.
        image: the operator's.
        manifests: the operator's `manifests` folder, relative to the kustomization.
    """
    path = "/spec/template/spec/containers/0"
    changes = [
        {"op": "replace", "path": f"{path}/image", "value": f"{at.registry}/{image.name}"},
        {"op": "add", "path": f"{path}/args", "value": [
            f"--pytorch-init-container-image={at.registry}/tools:1",
            f"--mpi-kubectl-delivery-image={at.registry}/kubectl:1",
        ]},
        {"op": "replace", "path": f"{path}/readinessProbe/initialDelaySeconds", "value": 0},
        {"op": "replace", "path": f"{path}/readinessProbe/periodSeconds", "value": 1},
        {"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 1},
    ]  # fmt: skip
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": _NAMESPACE,
        "resources": [f"{manifests}/overlays/standalone"],
        "patches": [
            {
                "target": {"kind": "Deployment", "name": "training-operator"},
                "patch": json.dumps(changes),
            }
        ],
    }
