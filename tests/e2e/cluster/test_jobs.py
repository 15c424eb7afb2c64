"""The training operator runs jobs of all its kinds, with kubectl alone.

Mpirun starts real ranks, which needs all that the operator gives an MPIJob. The pods of the other
kinds run busybox, and what is tested is the kind: frameworks run below tests/e2e/jobs.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until

second = pytest.mark.second("rig")


def config_map(source: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "program"},
        "data": {"cell.py": source},
    }


def replicas(count: int, container: str, image: str, command: list[str]) -> dict[str, Any]:
    return {
        "replicas": count,
        "restartPolicy": "Never",
        "template": {
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": container,
                        "image": image,
                        "command": command,
                        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
                    }
                ],
                "volumes": [{"name": "program", "configMap": {"name": "program"}}],
            }
        },
    }


def job(kind: str, spec: dict[str, Any], name: str = "digits") -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, **spec},
    }


RANKS = """
import socket
from mpi4py import MPI
world = MPI.COMM_WORLD
print('rank', world.rank, 'of', world.size, 'on', socket.gethostname())
"""


@second
@pytest.mark.usefixtures("with_mpi")
def test_an_mpijobs_mpirun_starts_each_rank_in_a_worker_and_none_in_the_launcher(
    namespace: Namespace,
) -> None:
    image = namespace.cluster.image("mpi")
    # The variables that the operator sets are Open MPI 4's. Open MPI 5 heeds them no more, and
    # would run both ranks in the launcher, without a word.
    where = "--hostfile /etc/mpi/hostfile --prtemca plm_ssh_agent /etc/mpi/kubexec.sh"
    # The real kubectl-delivery image waits for the workers; this cluster's does not.
    run = f"mpirun --allow-run-as-root {where} -np 2 python3 /program/cell.py"
    mpirun = ["sh", "-c", f"echo mpirun on $(hostname); until {run}; do sleep 1; done"]
    wait = ["sh", "-c", "echo waits on $(hostname); exec sleep 600"]
    spec = {
        "Launcher": replicas(1, "mpi", image, mpirun),
        "Worker": replicas(2, "mpi", image, wait),
    }
    namespace.create_objects(
        config_map(RANKS), job("MPIJob", {"slotsPerWorker": 1, "mpiReplicaSpecs": spec})
    )
    namespace.wait_for_job("mpijob/digits", seconds=180)
    # Each pod says its host's name, which has to be its own: else all of this proved nothing.
    pods = ("digits-launcher", "digits-worker-0", "digits-worker-1")
    logs = {pod: namespace.kubectl("logs", pod, "--container=mpi") for pod in pods}
    hosts = {pod: re.findall(r"^(?:mpirun|waits) on (\S+)$", logs[pod], re.M) for pod in pods}
    assert hosts == {pod: [pod] for pod in pods}, logs
    ran = re.findall(r"^rank (\d) of 2 on (\S+)$", logs["digits-launcher"], re.M)
    assert sorted(ran) == [("0", "digits-worker-0"), ("1", "digits-worker-1")], logs


# Kind: where its replicas stand, what they are, and the name that their container must have.
KINDS = {
    "TFJob": ("tfReplicaSpecs", ("Worker",), "tensorflow"),
    "PyTorchJob": ("pytorchReplicaSpecs", ("Master",), "pytorch"),
    "MPIJob": ("mpiReplicaSpecs", ("Launcher", "Worker"), "mpi"),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master",), "xgboost"),
    "PaddleJob": ("paddleReplicaSpecs", ("Worker",), "paddle"),
    "JAXJob": ("jaxReplicaSpecs", ("Worker",), "jax"),
}


# Most jobs of ciao are of these two.
OF_CIAO = {kind: [pytest.mark.stands_for("operators")] for kind in ("TFJob", "PyTorchJob")}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=OF_CIAO.get(kind, [second])) for kind in KINDS]
)
def test_each_kind_is_accepted_and_its_pods_run_busybox(kind: str, namespace: Namespace) -> None:
    field, roles, container = KINDS[kind]
    # An MPIJob's workers have to be there as long as its launcher.
    say = f"echo $(hostname) ran; {'sleep 2' if kind == 'MPIJob' else 'true'}"
    one = replicas(1, container, namespace.cluster.image("tools"), ["sh", "-c", say])
    namespace.create_objects(config_map(""), job(kind, {field: dict.fromkeys(roles, one)}))
    namespace.wait_for_job(f"{kind.lower()}/digits", seconds=120)
    for pod in namespace.get("pods")["items"]:  # a launcher may end before its worker has begun
        namespace.wait_for_pod(pod["metadata"]["name"], "Succeeded")
    pods = {
        pod["metadata"]["name"]: namespace.kubectl("logs", pod["metadata"]["name"], "-c", container)
        for pod in namespace.get("pods")["items"]
    }
    assert len(pods) == len(roles)
    assert pods == {name: f"{name} ran\n" for name in pods}


@second
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "MPIJob"])
def test_each_kinds_webhook_refuses_a_container_of_another_name(
    kind: str, namespace: Namespace
) -> None:
    field, roles, _ = KINDS[kind]
    one = replicas(1, "other", namespace.cluster.image("tools"), ["true"])
    with pytest.raises(ClusterError, match="admission webhook"):
        namespace.create_objects(job(kind, {field: dict.fromkeys(roles, one)}))
    assert namespace.get(kind.lower())["items"] == []


@second
@pytest.mark.parametrize("kind", KINDS)
def test_each_kinds_definition_refuses_a_field_of_another_type(
    kind: str, namespace: Namespace
) -> None:
    field, roles, container = KINDS[kind]
    one = replicas(1, container, "tools", ["true"]) | {"replicas": "two"}
    with pytest.raises(ClusterError, match=r"replicas.*(Invalid value|must be of type integer)"):
        namespace.create_objects(job(kind, {field: dict.fromkeys(roles, one)}))
    assert namespace.get(kind.lower())["items"] == []


@second
def test_an_mpijob_without_a_launcher_is_refused_by_an_event(namespace: Namespace) -> None:
    # MPIJob has no webhook: it is taken, and the controller says in an event what is wrong with it.
    one = replicas(1, "mpi", namespace.cluster.image("tools"), ["true"])
    namespace.create_objects(job("MPIJob", {"mpiReplicaSpecs": {"Worker": one}}))

    def told() -> set[tuple[str, str]]:
        events = namespace.get("events")["items"]
        return {
            (event["involvedObject"]["kind"], event["message"])
            for event in events
            if event["type"] == "Warning" and event["involvedObject"]["name"] == "digits"
        }

    why = "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"
    said = ("MPIJob", f"MPIJob failed validation because {why}")
    until(lambda: said in told(), "the event", 60)
    assert namespace.get("pods")["items"] == []
