"""Parts of the cluster that fail: what goes on meanwhile, and that all works again afterwards."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.faults.pods import PodPart
from tests.cluster.layout import layout
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e import namespaces

# The first test waits for the cluster.
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.second("rig"),
    pytest.mark.xdist_group("parts"),
]
StartPod = Callable[..., None]
PARTS = ("apiserver", "kubelet", "containerd", "registry")


@pytest.fixture(scope="module")
def local_cluster(raisable: None) -> Iterator[Cluster]:
    """A cluster to break, while other tests use the usual one; lowered unless it was up."""
    made = Cluster(layout("parts"))
    was_up = made.node.pid is not None
    made.up()
    yield made
    if not was_up:
        made.down()


@pytest.fixture
def namespace(local_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    yield from namespaces.fresh(local_cluster, request)


@pytest.fixture
def broken(local_cluster: Cluster, namespace: Namespace) -> Iterator[Cluster]:
    """The cluster, all of whose parts do their work afterwards, before the namespace goes."""
    yield local_cluster
    local_cluster.up()


@pytest.fixture
def ticking(namespace: Namespace, start_pod: StartPod) -> Callable[[], str]:
    """A pod that runs before the harm; tells which run of its container it is in."""
    start_pod("ticking", "while date +%s; do sleep 0.2; done")
    namespace.wait_for_pod("ticking", "Running")

    def run() -> str:
        (status,) = namespace.get("pod/ticking")["status"]["containerStatuses"]
        assert status["ready"]
        return f"{status['containerID']} {status['restartCount']}"

    return run


def pids(cluster: Cluster) -> dict[str, float]:
    return {name: part["pid"] for name, part in cluster.node.parts().items()}


def works(namespace: Namespace, start_pod: StartPod) -> None:
    """The whole chain: a new pod is scheduled, started, and says something."""
    start_pod("after", "echo works", restartPolicy="Never")
    namespace.wait_for_pod("after", "Succeeded")
    assert namespace.kubectl("logs", "after") == "works\n"


def harm(cluster: Cluster, how: str, part: str) -> None:
    {"kill": cluster.kill, "freeze": cluster.freeze}[how](part)


@pytest.mark.parametrize(
    ("how", "part"),
    [*[("kill", part) for part in PARTS], ("freeze", "apiserver"), ("freeze", "containerd")],
)
def test_pods_run_on_without_a_part_and_up_brings_back_it_alone(
    broken: Cluster,
    namespace: Namespace,
    start_pod: StartPod,
    ticking: Callable[[], str],
    part: str,
    how: str,
) -> None:
    before, container = pids(broken), ticking()

    harm(broken, how, part)
    broken.up()

    assert broken.well(part)
    changed = {name for name, pid in pids(broken).items() if pid != before[name]}
    assert changed == (set() if how == "freeze" else {part})
    works(namespace, start_pod)
    assert ticking() == container


@pytest.mark.parametrize("part", ["kubelet", "containerd", "registry"])
def test_a_part_that_ended_can_be_started_by_itself(
    broken: Cluster,
    namespace: Namespace,
    start_pod: StartPod,
    ticking: Callable[[], str],
    part: str,
) -> None:
    container = ticking()

    broken.stop(part)
    broken.start(part)

    works(namespace, start_pod)
    assert ticking() == container


def test_without_an_api_server_clients_wait_or_are_refused(broken: Cluster) -> None:
    broken.freeze("apiserver")
    with pytest.raises(ClusterError, match="imeout"):
        broken.kubectl("get", "nodes", "--request-timeout=2s")
    broken.thaw("apiserver")
    assert broken.at.node in broken.kubectl("get", "nodes")

    # It listens no more at once, but waits for its watches, a minute if need be.
    broken.node.send("apiserver", signal.SIGTERM)
    until(lambda: not broken.well("apiserver"), "the API server to listen no more", 60)

    def refused() -> bool:
        try:
            broken.kubectl("get", "nodes", "--request-timeout=2s")
        except ClusterError as error:
            return "was refused" in str(error)
        return False

    until(refused, "clients to be refused", 60)


@pytest.mark.parametrize(("how", "part"), [("kill", "kubelet"), ("freeze", "containerd")])
def test_without_kubelet_or_containerd_no_pod_starts_and_it_does_later(
    broken: Cluster, namespace: Namespace, start_pod: StartPod, part: str, how: str
) -> None:
    harm(broken, how, part)

    start_pod("waits")
    until(lambda: namespace.get("pod/waits")["spec"].get("nodeName"), "the scheduler", 60)
    with pytest.raises(ClusterError, match="waited"):
        namespace.wait_for_pod("waits", "Running", seconds=2)
    broken.up()
    namespace.wait_for_pod("waits", "Running")


@pytest.mark.slow
def test_without_a_registry_images_cannot_be_pulled(
    broken: Cluster, namespace: Namespace, start_pod: StartPod
) -> None:
    broken.kill("registry")

    start_pod("pulls", container={"imagePullPolicy": "Always"})
    until(lambda: "connection refused" in waiting(namespace, "pulls"), "the pull to fail", 90)
    broken.up()
    namespace.wait_for_pod("pulls", "Running", seconds=90)


def waiting(namespace: Namespace, pod: str) -> str:
    """Return the message of a container that does not start."""
    statuses = namespace.get(f"pod/{pod}")["status"].get("containerStatuses") or [{"state": {}}]
    return str(statuses[0]["state"].get("waiting", {}).get("message", ""))


def harm_pods(part: PodPart, how: str) -> None:
    {"stop": part.stop, "kill": part.kill, "freeze": part.freeze}[how]()


@pytest.fixture
def coredns(broken: Cluster) -> Iterator[PodPart]:
    yield from mended(PodPart(broken, "coredns"))


@pytest.fixture
def operator(broken: Cluster) -> Iterator[PodPart]:
    yield from mended(PodPart(broken, "training-operator"))


def mended(part: PodPart) -> Iterator[PodPart]:
    before = part.container()
    yield part
    # Killed once more, the kubelet would let it wait: a fresh pod has not been killed yet.
    if part.container() not in (None, before):
        part.restart()
    elif part.container():
        part.thaw()


@pytest.mark.parametrize("how", ["stop", "freeze"])
def test_without_coredns_no_name_resolves_and_all_do_when_it_is_back(
    coredns: PodPart, namespace: Namespace, start_pod: StartPod, how: str
) -> None:
    start_pod("asks")
    namespace.wait_for_pod("asks", "Running")

    def resolves() -> bool:
        try:
            answer = namespace.kubectl(
                "exec", "asks", "--", "timeout", "3", "nslookup", "kubernetes.default"
            )
        except ClusterError:
            return False
        return "10.96.0.1" in answer

    until(resolves, "names to resolve before", 60)
    harm_pods(coredns, how)
    assert not resolves()
    if how == "freeze":
        coredns.thaw()
    else:
        coredns.start()
    until(resolves, "names to resolve again", 60)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_without_the_operator_jobs_are_refused_and_running_ones_run_on(
    operator: PodPart,
    broken: Cluster,
    namespace: Namespace,
    ticking: Callable[[], str],
    how: str,
) -> None:
    container = ticking()
    namespace.create_objects(tfjob(broken, "early", "until test -e /tmp/go; do sleep 0.2; done"))
    namespace.wait_for_job("tfjob/early", "Running")

    harm_pods(operator, how)
    # Killed, it is back before one can look.
    if how != "kill":
        with pytest.raises(ClusterError, match="failed calling webhook"):
            namespace.create_objects(tfjob(broken, "refused", "true"))
        assert not namespace.find("tfjob/refused")
    namespace.touch("early-worker-0", "/tmp/go")
    namespace.wait_for_pod("early-worker-0", "Succeeded")
    operator.start()

    namespace.wait_for_job("tfjob/early")
    namespace.create_objects(tfjob(broken, "late", "true"))
    namespace.wait_for_job("tfjob/late")
    assert ticking() == container


@pytest.mark.parametrize("name", ["coredns", "training-operator"])
def test_a_killed_container_is_started_again_in_its_pod(
    broken: Cluster, name: str, request: pytest.FixtureRequest
) -> None:
    part: PodPart = request.getfixturevalue({"training-operator": "operator"}.get(name, name))
    (before,) = part.pods()
    container = part.container()

    part.kill()
    until(part.container, f"{name} to run again", 60)
    part.wait()

    (after,) = part.pods()
    (status,) = after["status"]["containerStatuses"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    (first,) = before["status"]["containerStatuses"]
    assert status["restartCount"] == first["restartCount"] + 1
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert part.container() not in (None, container)


def test_up_brings_back_pods_that_were_scaled_away(coredns: PodPart, broken: Cluster) -> None:
    coredns.stop()

    broken.up()

    assert coredns.container()


def tfjob(cluster: Cluster, name: str, command: str) -> dict[str, Any]:
    container = {
        "name": "tensorflow",
        "image": cluster.image("tools"),
        "command": ["/bin/busybox", "sh", "-c", command],
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "tfReplicaSpecs": {"Worker": {"replicas": 1, "template": template}},
        },
    }
