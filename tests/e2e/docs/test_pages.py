"""What the documentation says is for a cluster does on one what it says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.docs.ground import Ground
from tests.e2e.docs.reader import GUIDE, ClusterReader
from tests.helpers.colors import uncolored
from tests.integration.docs import blocks
from tests.integration.docs.blocks import PAGES, ROOT

pytestmark = pytest.mark.slow
FOUND = {page.relative_to(ROOT).as_posix(): blocks.read(page) for page in PAGES}
READ = [page for page, found in FOUND.items() if any(map(blocks.for_cluster, found))]
BREAKS = "docs/cluster.md"
"""The page that lets a part of the cluster be killed."""
FIRST = ("docs/tutorial.md",)
"""Pages of the first tier: a job from its first line to what it leaves."""
GROUPS = {"deploy/enterprise-gateway/README.md": "gateway"}
"""Pages that make what is other tests' too, by the group of those."""
NAMESPACES = {
    "deploy/enterprise-gateway/README.md": ("enterprise-gateway",),
    "deploy/gateway-provisioners/README.md": ("jupyter",),
    "deploy/jupyterhub/README.md": ("jupyterhub", "jupyterhub-jobs"),
}
"""Which pages have namespaces made, beside the one of the reader's team."""
BUILT_IN_PODS = ("builders/README.md", "docs/packages.md")
"""Pages whose reader may start pods that build."""
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
    "docs/first-steps.md": ("jobs run on Kubernetes", "[worker-0] I am worker 0"),
    "docs/packages.md": ("[build] ", "Succeeded"),
    "docs/tutorial.md": ("kind: TFJob", "slope offset\n"),
}
"""What a page's blocks have to have written when all is done; of replicas, those that decide:
others are ended with them, perhaps before they have begun."""


@contextlib.contextmanager
def prepared(page: str, reader: ClusterReader) -> Iterator[None]:
    """Let there be what a page takes for granted on its reader's cluster."""
    ground = reader.ground
    cluster, team = ground.shelf.cluster, ground.namespace
    kubectl = cluster.kubectl
    with contextlib.ExitStack() as stack:
        if page in BUILT_IN_PODS:
            # The guide for administrators names this Role beside the one that it binds.
            who = ("--role=ciao-builder", f"--group={team.name}-builders")
            team.kubectl("apply", "-f", str(ROOT / "deploy" / "rbac" / "builder-role.yaml"))
            team.kubectl("create", "rolebinding", "ciao-builder", *who)
        elif page == "docs/security.md":
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
        elif page == "docs/surviving.md":
            (first, *_) = [one for one in FOUND[page] if one.kind == "dry run"]
            reader.shell(first, "ciao config checkpoint=team-data", reader.place.work)
        elif page == "docs/coming-from.md":
            stack.callback(kubectl, "label", "node", cluster.at.node, "disk-")
            stack.callback(kubectl, "delete", "priorityclass", "low", "--ignore-not-found")
            kubectl("label", "node", cluster.at.node, "disk=ssd", "--overwrite")
            kubectl("create", "priorityclass", "low", "--value=-1")
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


def marks(page: str) -> list[pytest.MarkDecorator]:
    """The tier of a page, and beside which pages it is read: in two halves, each one by one."""
    half = f"docs {READ.index(page) % 2}"
    tier = pytest.mark.stands_for if page in FIRST else pytest.mark.second
    return [tier("docs"), pytest.mark.xdist_group(GROUPS.get(page, half))]


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks(page)) for page in READ if page != BREAKS]
)
def test_its_blocks_do_what_it_says(
    page: str, ground: Ground, place: Any, start_kernel: Any
) -> None:
    read(page, ground, place, start_kernel)


@pytest.mark.breaks_cluster
@pytest.mark.second("docs")
def test_the_page_that_lets_a_part_be_killed(
    own_cluster: Cluster, ground: Ground, place: Any, start_kernel: Any
) -> None:
    try:
        read(BREAKS, ground, place, start_kernel)
    finally:
        own_cluster.up()


def read(page: str, ground: Ground, place: Any, start_kernel: Any) -> None:
    """Go through a page, and see that its blocks have written what they have to."""
    reader = ClusterReader(place, start_kernel, ground)
    if page != GUIDE.relative_to(ROOT).as_posix():
        reader.enter(page, works=any(one.kind in ("cluster", "dry run") for one in FOUND[page]))
    with prepared(page, reader):
        said = ""
        for block in FOUND[page]:
            reader.output = ""
            reader.take(block)
            said += reader.output
    said = uncolored(said)
    assert [words for words in SAID.get(page, ()) if words not in said] == [], said


@pytest.mark.second("docs")
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
