"""The training operator runs real jobs of real frameworks, with kubectl alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.namespace import Namespace

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]
NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


def program(notebook: str) -> str:
    """The first job cell of an example, its directives as comments: plain Python."""
    cells = json.loads((NOTEBOOKS / notebook).read_text())["cells"]
    source = next("".join(c["source"]) for c in cells if "".join(c["source"]).startswith("%"))
    return re.sub(r"^%", "#%", source, flags=re.MULTILINE)


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


@pytest.mark.usefixtures("with_frameworks")
def test_a_tfjob_with_a_parameter_server_and_two_workers_trains_the_quickstarts_model(
    namespace: Namespace,
) -> None:
    one = (
        "tensorflow",
        namespace.cluster.image("tensorflow"),
        ["python3", "-u", "/program/cell.py"],
    )
    namespace.create_objects(
        config_map(program("quickstart.ipynb")),
        job("TFJob", {"tfReplicaSpecs": {"PS": replicas(1, *one), "Worker": replicas(2, *one)}}),
    )
    namespace.wait_for_job("tfjob/digits", seconds=180)
    log = namespace.kubectl("logs", "digits-worker-0")
    assert "worker 0 is done" in log
    accuracies = [float(text) for text in re.findall(r"accuracy (\d\.\d+)", log)]
    assert accuracies[-1] > 0.9, log
    assert "serving the model's variables" in namespace.kubectl("logs", "digits-ps-0")


@pytest.mark.usefixtures("with_frameworks")
def test_a_pytorchjob_with_master_and_worker_trains_by_torchrun(namespace: Namespace) -> None:
    command = ["python3", "-m", "torch.distributed.run", "--nproc-per-node=1", "/program/cell.py"]
    one = ("pytorch", namespace.cluster.image("pytorch"), command)
    spec = {"Master": replicas(1, *one), "Worker": replicas(1, *one)}
    namespace.create_objects(
        config_map(program("pytorch_ddp.ipynb")),
        job("PyTorchJob", {"nprocPerNode": "1", "pytorchReplicaSpecs": spec}),
    )
    namespace.wait_for_job("pytorchjob/digits", seconds=180)
    log = namespace.kubectl("logs", "digits-master-0")
    assert re.search(r"rank 0 of 2 wrote [\d,]+ bytes", log), log
    losses = [float(text) for text in re.findall(r"loss (\d\.\d+)", log)]
    assert losses[-1] < losses[0] / 2, log


@pytest.mark.usefixtures("with_mpi")
def test_an_mpijob_runs_mpirun_over_two_workers(namespace: Namespace) -> None:
    source = "from mpi4py import MPI\nw = MPI.COMM_WORLD\nprint('rank', w.rank, 'of', w.size)\n"
    image = namespace.cluster.image("mpi")
    # The real kubectl-delivery image waits for the workers; this cluster's does not.
    run = "mpirun --allow-run-as-root -np 2 python3 /program/cell.py"
    mpirun = ["sh", "-c", f"until {run}; do sleep 1; done"]
    spec = {
        "Launcher": replicas(1, "mpi", image, mpirun),
        "Worker": replicas(2, "mpi", image, ["sleep", "600"]),
    }
    namespace.create_objects(
        config_map(source), job("MPIJob", {"slotsPerWorker": 1, "mpiReplicaSpecs": spec})
    )
    namespace.wait_for_job("mpijob/digits", seconds=120)
    log = namespace.kubectl("logs", "digits-launcher")
    assert sorted(re.findall(r"rank \d of 2", log)) == ["rank 0 of 2", "rank 1 of 2"], log


# Kind: where its replicas stand, what they are, and the name that their container must have.
KINDS = {
    "TFJob": ("tfReplicaSpecs", ("Worker",), "tensorflow"),
    "PyTorchJob": ("pytorchReplicaSpecs", ("Master",), "pytorch"),
    "MPIJob": ("mpiReplicaSpecs", ("Launcher", "Worker"), "mpi"),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master",), "xgboost"),
    "PaddleJob": ("paddleReplicaSpecs", ("Worker",), "paddle"),
    "JAXJob": ("jaxReplicaSpecs", ("Worker",), "jax"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_accepted_and_its_pods_run(kind: str, namespace: Namespace) -> None:
    field, roles, container = KINDS[kind]
    one = replicas(1, container, namespace.cluster.image("tools"), ["true"])
    if kind == "MPIJob":
        one["template"]["spec"]["containers"][0]["command"] = ["sleep", "2"]
    namespace.create_objects(config_map(""), job(kind, {field: dict.fromkeys(roles, one)}))
    namespace.wait_for_job(f"{kind.lower()}/digits", seconds=60)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "MPIJob"])
def test_each_kinds_webhook_refuses_a_container_of_another_name(
    kind: str, namespace: Namespace
) -> None:
    field, roles, _ = KINDS[kind]
    one = replicas(1, "other", namespace.cluster.image("tools"), ["true"])
    with pytest.raises(ClusterError, match="admission webhook"):
        namespace.create_objects(job(kind, {field: dict.fromkeys(roles, one)}))
    assert namespace.get(kind.lower())["items"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_each_kinds_definition_refuses_a_field_of_another_type(
    kind: str, namespace: Namespace
) -> None:
    field, roles, container = KINDS[kind]
    one = replicas(1, container, "tools", ["true"]) | {"replicas": "two"}
    with pytest.raises(ClusterError, match=r"replicas: Invalid value|unknown|invalid"):
        namespace.create_objects(job(kind, {field: dict.fromkeys(roles, one)}))
    assert namespace.get(kind.lower())["items"] == []


def test_an_mpijob_without_a_launcher_fails_in_words(namespace: Namespace) -> None:
    # MPIJob has no webhook: the controller looks at it, and says so in an event.
    one = replicas(1, "mpi", namespace.cluster.image("tools"), ["true"])
    try:
        namespace.create_objects(job("MPIJob", {"mpiReplicaSpecs": {"Worker": one}}))
    except ClusterError as error:
        assert "Launcher" in str(error)  # noqa: PT017
        return
    assert namespace.find("pod/digits-launcher") is None
