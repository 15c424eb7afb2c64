"""What the documentation says is for a cluster does on one what it says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.docs.ground import Ground
from tests.e2e.docs.reader import GUIDE, ClusterReader
from tests.integration.docs import blocks
from tests.integration.docs.blocks import PAGES, ROOT

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
FOUND = {page.relative_to(ROOT).as_posix(): blocks.read(page) for page in PAGES}
READ = [page for page, found in FOUND.items() if any(map(blocks.for_cluster, found))]
NAMESPACES = {
    "deploy/enterprise-gateway/README.md": ("enterprise-gateway",),
    "deploy/gateway-provisioners/README.md": ("jupyter",),
    "deploy/jupyterhub/README.md": ("jupyterhub", "jupyterhub-jobs"),
}
"""Which pages have namespaces made, beside the one of the reader's team."""
MNIST = """# %framework=tensorflow
# %worker=1
# %name=mnist
# %restartPolicy=OnFailure
# %detach
import os, time

print("training", flush=True)
if not os.path.exists("/dev/shm/again"):
    open("/dev/shm/again", "w").close()
    raise SystemExit(1)
while not os.path.exists("/tmp/asked"):
    time.sleep(0.1)
"""
"""A job that was started again, and trains until somebody asks for its GPUs."""

SAID = {
    "README.md": ("kind: PyTorchJob",),
    "builders/README.md": ("[build] ", "the environment is "),
    "docs/admin.md": ("training-operator serverside-applied (server dry run)", "yes\n"),
    "docs/cluster.md": ("apiserver", "COMMIT"),
    "docs/coming-from.md": ("[worker-0] the same file",),
    "docs/commands.md": ("mnist", "0 GPUs", "[worker-0] training", "Succeeded"),
    "docs/packages.md": ("[build] ", "Succeeded"),
    "docs/tutorial.md": ("kind: TFJob", "slope offset\n"),
}
"""What a page's blocks have to have written when all is done."""


@contextlib.contextmanager
def prepared(page: str, reader: ClusterReader) -> Iterator[None]:
    """Let there be what a page takes for granted on its reader's cluster."""
    ground = reader.ground
    cluster, team = ground.shelf.cluster, ground.namespace
    kubectl = cluster.kubectl
    with contextlib.ExitStack() as stack:
        if page == "docs/security.md":
            team.kubectl("create", "secret", "generic", "wandb", "--from-literal=WANDB_API_KEY=k")
        elif page == "docs/commands.md":
            # `ciao jobs -A` is for those who may list the jobs of all namespaces.
            kinds = "--resource=tfjobs.kubeflow.org,pytorchjobs.kubeflow.org,pods"
            role, name = f"--clusterrole={team.name}", team.name
            for kind in ("clusterrole", "clusterrolebinding"):
                stack.callback(kubectl, "delete", kind, name, "--ignore-not-found")
            kubectl("create", "clusterrole", name, "--verb=list", kinds)
            kubectl("create", "clusterrolebinding", name, role, "--user=ada")
            reader.write("mnist.py", MNIST)
            (block,) = [one for one in FOUND[page] if one.kind == "cluster"]
            reader.shell(block, "ciao run mnist.py", reader.place.work)
            until(lambda: _restarts(team) == 1, "the job to start again", 120, every=0.3)
        elif page == "docs/coming-from.md":
            stack.callback(kubectl, "label", "node", cluster.at.node, "disk-")
            stack.callback(kubectl, "delete", "priorityclass", "low", "--ignore-not-found")
            kubectl("label", "node", cluster.at.node, "disk=ssd", "--overwrite")
            kubectl("create", "priorityclass", "low", "--value=-1")
        elif page == "docs/cluster.md":
            stack.callback(cluster.up)  # the page lets a part of it be killed
        elif names := NAMESPACES.get(page):
            gone = ("delete", "namespace", *names, "--ignore-not-found")
            kubectl(*gone)
            stack.callback(kubectl, *gone, "--wait=false")
            if page == "deploy/jupyterhub/README.md":
                kubectl("create", "namespace", "jupyterhub")  # the chart is installed there
        yield


def _restarts(team: Namespace) -> int:
    states = [one["status"].get("containerStatuses") for one in team.get("pods")["items"]]
    return sum(one["restartCount"] for pod in states for one in pod or () if one["ready"])


@pytest.mark.parametrize("page", READ)
def test_its_blocks_do_what_it_says(
    page: str, ground: Ground, place: Any, start_kernel: Any
) -> None:
    reader = ClusterReader(place, start_kernel, ground)
    if page != GUIDE.relative_to(ROOT).as_posix():
        reader.enter(page, works=any(one.kind in ("cluster", "dry run") for one in FOUND[page]))
    with prepared(page, reader):
        said = ""
        for block in FOUND[page]:
            reader.output = ""
            reader.take(block)
            said += reader.output
    assert [words for words in SAID.get(page, ()) if words not in said] == [], said


def test_the_example_of_a_test_is_one(namespace: Namespace) -> None:
    """The test in docs/cluster.md, with a job that ends."""
    (block,) = [one for one in FOUND["docs/cluster.md"] if one.kind == "by"]
    container = {
        "name": "tensorflow",
        "image": namespace.cluster.image("tools"),
        "command": ["echo", "done"],
    }
    template = {"spec": {"containers": [container]}}
    worker = {"replicas": 1, "restartPolicy": "Never", "template": template}
    made = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "digits"},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, "tfReplicaSpecs": {"Worker": worker}},
    }
    names: dict[str, Any] = {"manifest": made}
    exec(compile(block.text, block.place, "exec"), names)
    names["test_something"](namespace)
