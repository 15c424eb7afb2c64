"""A user's pod of JupyterHub as deploy/ has it: its jobs run in a namespace of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from tests.cluster import recipes
from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.cluster.rights import account, may, wait_until_may
from tests.e2e.gateway.place import DEPLOY, RESTRICTED, wheel

pytestmark = [pytest.mark.slow, pytest.mark.second("gateway")]
CHART = yaml.safe_load((DEPLOY / "jupyterhub/values.yaml").read_text())
USERS = CHART["singleuser"]["serviceAccountName"]
GIVEN = [
    ("create", "tfjobs.kubeflow.org"),
    ("create", "jobs.batch"),
    ("create", "services"),
    ("get", "pods/log"),
]
FORBIDDEN = [
    ("create", "tfjobs.kubeflow.org"),
    ("create", "jobs.batch"),
    ("create", "services"),
    ("create", "pytorchjobs.kubeflow.org"),
    ("create", "pods/exec"),
    ("get", "pods/exec"),
    ("get", "pods/log"),
    ("list", "pods"),
    ("create", "pods"),
    ("get", "secrets"),
    ("get", "configmaps"),
]
"""With any of them a user would be the hub's administrator, or read a colleague's notebooks."""


@pytest.fixture(scope="module")
def hub(local_cluster: Cluster) -> Iterator[Namespace]:
    """The hub's namespace: its Secret, and the account of users' pods."""
    namespace = Namespace(local_cluster, "jupyterhub", RESTRICTED)
    namespace.create()
    try:
        namespace.kubectl("create", "serviceaccount", USERS)
        namespace.kubectl("create", "secret", "generic", "hub", "--from-literal=token=the-hubs")
        yield namespace
    finally:
        namespace.delete()


@pytest.fixture(scope="module")
def jobs(hub: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """The namespace of the jobs, with the rights of deploy/ for this hub."""
    namespace = Namespace(hub.cluster, "jupyterhub-jobs", RESTRICTED)
    namespace.create()
    folder: Path = tmp_path_factory.mktemp("jobs")
    change = [{"op": "replace", "path": "/subjects/0/namespace", "value": hub.name}]
    overlay = {
        "namespace": namespace.name,
        "resources": [os.path.relpath(DEPLOY / "jupyterhub/jobs", folder.resolve())],
        "patches": [{"target": {"kind": "RoleBinding"}, "patch": json.dumps(change)}],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    try:
        namespace.cluster.kubectl("apply", "-k", str(folder))
        wait_until_may(namespace.cluster, account(hub.name, USERS), GIVEN, namespace.name)
        yield namespace
    finally:
        namespace.delete()


def test_users_have_rights_in_the_jobs_namespace_and_none_in_the_hubs(
    local_cluster: Cluster, hub: Namespace, jobs: Namespace
) -> None:
    users = account(hub.name, USERS)
    for verb, resource in GIVEN:
        assert may(local_cluster, users, verb, resource, jobs.name)
    assert not may(local_cluster, users, "get", "secrets", jobs.name)
    for verb, resource in FORBIDDEN:
        assert not may(local_cluster, users, verb, resource, hub.name), (verb, resource)


def test_the_jobs_namespace_has_the_rules_of_a_teams_network(jobs: Namespace) -> None:
    found = jobs.get("networkpolicies.networking.k8s.io")["items"]
    assert {"closed", "replicas"} <= {one["metadata"]["name"] for one in found}


@pytest.mark.usefixtures("with_jupyter")
def test_a_cell_in_the_users_own_pod_runs_in_the_jobs_namespace(
    local_cluster: Cluster, hub: Namespace, jobs: Namespace
) -> None:
    """As JupyterHub starts it, but that the pod runs a notebook and no server."""
    secret = f"%namespace={hub.name}\n%envsecret=hub\nimport os\nprint(os.environ['token'])\n"
    cells = [
        "%framework=tensorflow\n%name=hub\n%worker=1\nprint('trained')\n",
        f"%framework=tensorflow\n%name=thief\n%worker=1\n{secret}",
    ]
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "ciao", "display_name": "Ciao"}},
        cells=[nbformat.v4.new_code_cell(one) for one in cells],
    )
    kernel, server = (
        local_cluster.put(make(wheel())) for make in (recipes.kernel, recipes.jupyter)
    )
    hub.create_objects(_single_user(kernel, server, jobs.name, nbformat.writes(notebook)))
    hub.wait_for_pod("jupyter-ada", "Failed", 200)
    job = jobs.get("tfjob/hub")
    assert job["metadata"]["annotations"]["ciao-kernel/owner"].startswith("ada@hub")
    assert jobs.condition("tfjob/hub", "Succeeded")
    # The second cell is why the pod failed.
    log = hub.log_text()
    assert "tfjobs" in log
    assert "the-hubs" not in log
    assert not hub.get("tfjobs")["items"]


def _single_user(kernel: str, server: str, jobs: str, notebook: str) -> dict[str, Any]:
    """The pod that the chart would make of deploy/'s values, with this cluster's names."""
    values, spawner = CHART["singleuser"], CHART["hub"]["config"]["KubeSpawner"]
    assert values["extraEnv"].keys() == {"CIAO_IMAGES", "CIAO_NAMESPACE"}
    run = 'printf %s "$NOTEBOOK" > work.ipynb && exec jupyter execute work.ipynb'
    env = {
        "CIAO_IMAGES": f"tensorflow={kernel}",
        "CIAO_NAMESPACE": jobs,
        "JUPYTERHUB_USER": "ada",
        "NOTEBOOK": notebook,
    }
    container = {
        "name": "notebook",
        "image": server,
        "command": [*values["cmd"][:-1], "sh", "-c", run],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "securityContext": {
            "runAsUser": values["uid"],
            "allowPrivilegeEscalation": False,  # by the chart's own values
            **spawner["container_security_context"],
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "jupyter-ada"},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": USERS,
            "securityContext": {"fsGroup": values["fsGid"]},
            "containers": [container],
        },
    }
