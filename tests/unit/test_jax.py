"""What JAX's framework makes of a spec, against what the operator and JAX itself do."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.model import Address, Replica
from tests.unit.test_frameworks import operators, spec

OMPI = {
    "OMPI_MCA_orte_hnp_uri": "1.0;tcp://127.0.0.1:1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


@pytest.mark.parametrize("index", [0, 2])
def test_the_environment_has_the_operators_variables_and_jaxs(index: int) -> None:
    framework, job = spec("%framework=jax %worker=3")
    assert framework.environment(job, Replica("worker", index), operators(job, 6666)) == {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_ADDRESS": "mnist-worker-0.team.svc",
        "COORDINATOR_PORT": "6666",
        "NUM_PROCESSES": "3",
        "PROCESS_ID": str(index),
        "JAX_COORDINATOR_ADDRESS": "mnist-worker-0.team.svc:6666",
        "OMPI_COMM_WORLD_RANK": str(index),
        **OMPI,
    }


def test_on_this_machine_the_coordinator_listens_on_the_loopback_only() -> None:
    framework, job = spec("%framework=jax")
    here = {Replica("worker", 0): Address("127.0.0.1", 20001)}
    env = framework.environment(job, Replica("worker", 0), here)
    assert env["JAX_COORDINATOR_BIND_ADDRESS"] == "127.0.0.1:20001"


def test_a_worker_of_several_gpus_gets_all_of_them() -> None:
    for count, ids in ((1, None), (4, "0,1,2,3")):
        framework, job = spec(f"%framework=jax %worker=2;%gpu={count}")
        env = framework.environment(job, Replica("worker", 1), operators(job))
        assert env.get("JAX_LOCAL_DEVICE_IDS") == ids


def test_all_workers_decide() -> None:
    framework, job = spec("%framework=jax %worker=2")
    assert framework.decider(job) is None
    framework, job = spec("%framework=jax")
    assert job.replicas() == (Replica("worker", 0),)


def template(*env: str) -> dict[str, Any]:
    """A pod template as the backend makes it, with these variables."""
    variables = [{"name": name, "value": "x"} for name in env]
    first = {"image": "i", "env": variables}
    return {"metadata": {}, "spec": {"containers": [first, {"name": "other"}]}}


def test_a_pod_has_the_variables_that_the_operator_does_not_set() -> None:
    framework, job = spec("%framework=jax %worker=3")
    given = template("CIAO_JOB", "OMPI_COMM_WORLD_LOCAL_RANK")
    made = framework.manifest(job, {"worker": given})
    assert (made.kind, made.plural, made.container) == ("JAXJob", "jaxjobs", "jax")
    worker = made.spec["jaxReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (3, "Never")
    first, other = worker["template"]["spec"]["containers"]
    assert first["name"] == "jax"
    assert other == {"name": "other"}
    assert [one["name"] for one in first["env"][:2]] == ["CIAO_JOB", "OMPI_COMM_WORLD_LOCAL_RANK"]
    assert {one["name"]: one["value"] for one in first["env"][1:]} == {
        **OMPI,
        "OMPI_COMM_WORLD_LOCAL_RANK": "x",  # the user's own
        "OMPI_COMM_WORLD_RANK": "$(CIAO_INDEX)",
        "JAX_COORDINATOR_ADDRESS": "$(CIAO_JOB)-worker-0:6666",
    }
    assert given == template("CIAO_JOB", "OMPI_COMM_WORLD_LOCAL_RANK")
