"""mpi-operator, with its version of MPIJob in place of the training operator's.

Both have the same CustomResourceDefinition, so the training operator is told to leave MPIJobs
alone, as administrators do who have both. No cluster of other tests can be such a one.
"""

import json
import os
import time
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import Layout
from tests.cluster.operators import Kubectl
from tests.cluster.programs import programs
from tests.cluster.recipes import MPI_OPERATOR

_SCHEMES = ("tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob")
_CRD = "customresourcedefinition/mpijobs.kubeflow.org"
_SECONDS = 120.0


def put(at: Layout, kubectl: Kubectl) -> None:
    """Put it into the cluster, and wait until it runs and its version is served.

    Raises:
        ClusterError: not within the time.
    """
    args = "/spec/template/spec/containers/0/args/-"
    schemes = [{"op": "add", "path": args, "value": f"--enable-scheme={one}"} for one in _SCHEMES]
    kubectl(
        "patch", "deployment/training-operator", "-n", "kubeflow", "--type=json",
        "-p", json.dumps(schemes),
    )  # fmt: skip
    kubectl("rollout", "status", "deployment/training-operator", "-n", "kubeflow",
            f"--timeout={_SECONDS:.0f}s")  # fmt: skip
    kubectl("delete", _CRD, "--ignore-not-found")
    place = at.folder / "mpi-operator"
    place.mkdir(exist_ok=True)
    below = Path(os.path.relpath(programs("mpi-operator"), place))
    name, _, tag = MPI_OPERATOR.name.partition(":")
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{below}/manifests/overlays/standalone"],
        "images": [
            {
                "name": "mpioperator/mpi-operator",
                "newName": f"{at.registry}/{name}",
                "newTag": tag,
            }
        ],
    }
    (place / "kustomization.yaml").write_text(json.dumps(content))
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(place))
    kubectl("rollout", "status", "deployment/mpi-operator", "-n", "mpi-operator",
            f"--timeout={_SECONDS:.0f}s")  # fmt: skip
    deadline = time.monotonic() + _SECONDS
    while "v2beta1" not in kubectl("get", _CRD, "-o", "jsonpath={.status.storedVersions}"):
        if time.monotonic() > deadline:
            raise ClusterError("MPIJob of v2beta1 is not served")
        time.sleep(0.3)
