"""Which versions the cluster is made of. Go modules are pinned in modules/*/go.mod."""

import re
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
_ALWAYS = ("kubernetes", "operator", "coredns")

# The suite that the node and all images come from: python 3.13, torch 2.6, containerd 1.7.
DEBIAN = "trixie"
MIRROR = "http://deb.debian.org/debian"

TENSORFLOW = "tensorflow-cpu==2.21.0"
XGBOOST = "xgboost-cpu==3.4.1"
JAX = "'jax[cpu]==0.12.0.1'"
# paddle imports setuptools.
PADDLE = ("paddlepaddle==3.3.1", "setuptools")
# Enterprise Gateway imports distutils, which it has from setuptools.
GATEWAY = ("jupyter-enterprise-gateway==3.3.0", "kubernetes==37.0.2", "'setuptools<81'")


def version(module: str, name: str) -> str:
    """Return the version of a module that modules/`name`/go.mod requires, such as `v1.34.4`."""
    text = (MODULES / name / "go.mod").read_text()
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)$", text, re.MULTILINE)
    if not found:
        raise LookupError(f"{module} is not in modules/{name}/go.mod")
    return found[1]


def _go() -> tuple[int, int]:
    """Return the oldest Go that builds what every cluster is made of."""
    texts = [(MODULES / name / "go.mod").read_text() for name in _ALWAYS]
    found = [re.search(r"^go (\d+)\.(\d+)", text, re.MULTILINE) for text in texts]
    return max((int(one[1]), int(one[2])) for one in found if one)


GO = _go()
KUBERNETES = version("k8s.io/kubernetes", "kubernetes")
OPERATOR = version("github.com/kubeflow/training-operator", "operator")
OLDER_OPERATOR = version("github.com/kubeflow/training-operator", "older-operator")
COREDNS = version("github.com/coredns/coredns", "coredns")
TRAINER = version("github.com/kubeflow/trainer/v2", "trainer")
MPI_OPERATOR = version("github.com/kubeflow/mpi-operator", "mpi-operator")
JOBSET = version("sigs.k8s.io/jobset", "trainer")
