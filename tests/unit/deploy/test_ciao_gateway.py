"""The namespace that Enterprise Gateway creates for a kernel. tests/e2e has the real gateway."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from kubernetes import client

FOLDER = Path(__file__).parents[3] / "deploy/enterprise-gateway"
ABOVE = "enterprise_gateway.services.processproxies.k8s"


class Failed(Exception):
    """What the gateway's log_and_raise raises."""


class Theirs:
    """What the gateway's own class gives to ciao's."""

    kernel_pod_name, kernel_id = "ada-1", "1"

    def __init__(self, core: Core, restarting: bool = False, bind: Exception | None = None) -> None:
        self.core, self.bound, self._bind = core, [], bind
        self.kernel_manager = SimpleNamespace(restarting=restarting)
        self.delete_kernel_namespace = False

    def _create_role_binding(self, namespace: str, account: str) -> None:
        if self._bind:
            raise self._bind
        self.bound.append((namespace, account))

    def log_and_raise(self, http_status_code: int, reason: str) -> None:
        raise Failed(http_status_code, reason)


class Core:
    """The API server, which may refuse to create a namespace."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal, self.made, self.deleted = refusal, [], []

    def create_namespace(self, body: dict[str, Any]) -> None:
        if self.refusal:
            raise self.refusal
        self.made.append(body)

    def delete_namespace(self, name: str) -> None:
        self.deleted.append(name)


def refused(status: int, message: str) -> client.ApiException:
    error = client.ApiException(status=status, reason="No")
    error.body = json.dumps({"kind": "Status", "message": message})
    return error


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """ciao_gateway.py, beside a gateway that is not installed here."""
    names = ABOVE.split(".")
    for depth in range(1, len(names)):
        name = ".".join(names[:depth])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    above = ModuleType(ABOVE)
    above.KubernetesProcessProxy = Theirs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, ABOVE, above)
    spec = importlib.util.spec_from_file_location(
        "ciao_gateway", FOLDER / "kernelspec/ciao_gateway.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def start(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, core: Core, **how: Any
) -> tuple[Any, str]:
    monkeypatch.setattr(client, "CoreV1Api", lambda: core)
    proxy = module.Proxy(core, **how)
    return proxy, proxy._create_kernel_namespace("default")


def test_the_namespace_has_the_gateways_labels_and_a_level(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core()
    proxy, name = start(module, monkeypatch, core)
    (made,) = core.made
    assert made["metadata"] == {
        "name": "ada-1",
        "labels": {
            "app": "enterprise-gateway",
            "component": "kernel",
            "kernel_id": "1",
            "pod-security.kubernetes.io/enforce": "baseline",
        },
    }
    assert name == "ada-1"
    assert proxy.bound == [("ada-1", "default")]
    assert proxy.delete_kernel_namespace


def test_a_refused_namespace_ends_the_start_with_the_servers_words(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Failed) as error:
        start(module, monkeypatch, Core(refused(403, "namespaces is\nforbidden")))
    assert error.value.args == (500, "the namespace ada-1 was not created: namespaces is forbidden")


def test_a_kernel_that_is_restarted_keeps_its_namespace(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = refused(409, "already exists")
    proxy, name = start(module, monkeypatch, Core(there), restarting=True)
    assert (name, proxy.bound, proxy.delete_kernel_namespace) == ("ada-1", [], True)
    with pytest.raises(Failed, match="already exists"):
        start(module, monkeypatch, Core(there))


def test_a_namespace_without_a_role_is_deleted(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core()
    with pytest.raises(Failed, match="in the namespace ada-1: it is broken"):
        start(module, monkeypatch, core, bind=OSError("it is\tbroken"))
    assert core.deleted == ["ada-1"]


def test_kernel_json_and_the_gateway_name_this_module(module: ModuleType) -> None:
    spec = json.loads((FOLDER / "kernelspec/kernel.json").read_text())
    assert spec["metadata"]["process_proxy"]["class_name"] == "ciao_gateway.Proxy"
    files = yaml.safe_load((FOLDER / "kernelspec/kustomization.yaml").read_text())
    assert "ciao_gateway.py" in files["configMapGenerator"][0]["files"]
    objects = yaml.safe_load_all((FOLDER / "gateway/gateway.yaml").read_text())
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert env["PYTHONPATH"] == mounts["kernelspec"]
    assert spec["argv"][1] == f"{mounts['kernelspec']}/launch.py"
    # The policies ask for the level that the module sets.
    policies = (FOLDER / "namespaces/policy.yaml").read_text()
    assert f"['{module.LEVEL}', 'restricted']" in policies
