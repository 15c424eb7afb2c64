"""A user's Jupyter server in the cluster: kernels in pods beside it, or in its own pod."""

from __future__ import annotations

import time
from typing import Any

import nbformat
import pytest
import yaml

from tests.cluster.waiting import until
from tests.e2e.gateway.cells import cell, detached, running
from tests.e2e.gateway.client import Api
from tests.e2e.gateway.place import DEPLOY, SPEC, Gateway

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


@pytest.fixture(scope="module")
def server(provisioners: Gateway) -> Gateway:
    return provisioners


@pytest.fixture(scope="module")
def api(server: Gateway) -> Api:
    return server.up()


def test_kernels_run_in_pods_and_leave_their_jobs(server: Gateway, api: Api) -> None:
    kernel = api.start(SPEC)
    names = kernel.value("import os; print(*os.environ)").split()
    assert "KERNEL_USERNAME" in names
    assert not {"JUPYTER_TOKEN", "JPY_API_TOKEN"}.intersection(names)
    done = kernel.run("%framework=tensorflow\n%worker=2\nprint('trained')\n")
    assert done.text.count("trained\n") == 2, done.of("error")

    request = kernel.execute(cell("stopped"))
    kernel.wait_text(request, "here")
    kernel.interrupt()
    kernel.finish(request, 20)
    until(lambda: "stopped" not in server.team.jobs(), "the job to go", 30)

    detached(kernel, "detached")
    running(kernel, "followed")
    kernel.restart()
    assert kernel.value("print('alive')") == "alive"
    running(kernel, "third")
    kernel.delete()
    until(lambda: kernel.id not in server.team.kernels(), "the kernel's pod to go", 30)
    time.sleep(4)  # A stop would have come after three.
    assert {"detached", "followed", "third"} <= server.team.jobs()


def test_a_kernel_in_the_users_own_pod_submits_as_the_account_of_the_hubs_values(
    server: Gateway, api: Api
) -> None:
    """As JupyterHub starts it, but that the pod runs a notebook and no server."""
    cells = ["%framework=tensorflow\n%name=hub\n%worker=1\nprint('trained')\n"]
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "ciao", "display_name": "Ciao"}},
        cells=[nbformat.v4.new_code_cell(one) for one in cells],
    )
    server.team.namespace.create_objects(_single_user(server, nbformat.writes(notebook)))
    server.team.namespace.wait_for_pod("jupyter-ada", "Succeeded", 90)
    job = server.team.namespace.get("tfjob/hub")
    assert job["metadata"]["annotations"]["ciao-kernel/owner"].startswith("ada@hub")
    assert server.team.namespace.condition("tfjob/hub", "Succeeded")


def _single_user(server: Gateway, notebook: str) -> dict[str, Any]:
    """The pod that the chart would make of deploy/'s values, with this cluster's images."""
    values = yaml.safe_load((DEPLOY / "jupyterhub/values.yaml").read_text())["singleuser"]
    assert values["extraEnv"].keys() == {"CIAO_IMAGES"}
    run = 'printf %s "$NOTEBOOK" > work.ipynb && exec jupyter execute work.ipynb'
    env = {
        "CIAO_IMAGES": f"tensorflow={server.kernel}",
        "JUPYTERHUB_USER": "ada",
        "NOTEBOOK": notebook,
    }
    container = {
        "name": "notebook",
        "image": server.image,
        "command": [*values["cmd"][:-1], "sh", "-c", run],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "securityContext": {
            "runAsUser": values["uid"],
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "jupyter-ada"},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": values["serviceAccountName"],
            "securityContext": {"fsGroup": values["fsGid"]},
            "containers": [container],
        },
    }
