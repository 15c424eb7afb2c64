"""The pod that the gateways' launcher makes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
KERNELSPECS = ("enterprise-gateway/kernelspec", "gateway-provisioners")
SERVERS = ("enterprise-gateway/gateway/gateway.yaml", "gateway-provisioners/jupyter.yaml")
CHOSEN = {
    "KERNEL_IMAGE": "registry/ciao-kernel:1",
    "KERNEL_NAMESPACE": "team-a",
    "KERNEL_POD_NAME": "ada-1",
    "KERNEL_SERVICE_ACCOUNT_NAME": "ciao-kernel",
}
WORDS = [
    *("--kernel-id", "1", "--port-range", "0..0"),
    *("--response-address", "10.0.0.1:8877", "--public-key", "KEY"),
]


@pytest.fixture(scope="module")
def launch() -> ModuleType:
    file = ROOT / "deploy/enterprise-gateway/kernelspec/launch.py"
    spec = importlib.util.spec_from_file_location("launch", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pod(launch: ModuleType, *words: str, **environment: str) -> dict[str, Any]:
    found: dict[str, Any] = launch.pod(
        launch.arguments([*WORDS, *words]), {**CHOSEN, **environment}
    )
    return found


def container(made: dict[str, Any]) -> dict[str, Any]:
    (one,) = made["spec"]["containers"]
    found: dict[str, Any] = one
    return found


def variables(made: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container(made)["env"]}


def test_of_the_environment_only_what_is_the_kernels_reaches_the_pod(launch: ModuleType) -> None:
    secrets = {"EG_AUTH_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "k", "PATH": "/x", "HOME": "/root"}
    found = variables(pod(launch, CIAO_REGISTRY="r", KERNEL_USERNAME="ada", **secrets))
    assert found["CIAO_REGISTRY"] == "r"
    assert found["KERNEL_USERNAME"] == "ada"
    assert not secrets.keys() & found.keys()
    starts = {"RESPONSE_ADDRESS": "10.0.0.1:8877", "PUBLIC_KEY": "KEY", "PORT_RANGE": "0..0"}
    assert starts.items() <= found.items()
    assert found["KERNEL_CLASS_NAME"] == "ciao_kernel.kernel.CiaoKernel"
    assert "TRANSPORT_ENCRYPTION" not in found


def test_the_pod_meets_pod_securitys_level_restricted(launch: ModuleType) -> None:
    made = pod(launch)
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    assert made["spec"]["securityContext"]["runAsUser"] == 1000
    assert made["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(made)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_cluster_may_choose_the_user_and_the_group_of_volumes(launch: ModuleType) -> None:
    """OpenShift refuses what is not in the ranges of the namespace."""

    def ids(**environment: str) -> dict[str, int]:
        context = pod(launch, **environment)["spec"]["securityContext"]
        return {name: context[name] for name in context if name in fields}

    fields = ("runAsUser", "runAsGroup", "fsGroup")
    assert ids() == {"runAsUser": 1000, "runAsGroup": 100, "fsGroup": 100}
    chosen = ids(KERNEL_UID="2000", KERNEL_GID="3000", KERNEL_FS_GROUP="4000")
    assert chosen == {"runAsUser": 2000, "runAsGroup": 3000, "fsGroup": 4000}
    # Enterprise Gateway always sets these two.
    assert ids(KERNEL_UID="1000", KERNEL_GID="100", KERNEL_FS_GROUP="") == {"runAsGroup": 100}


def test_the_gateways_find_the_pod(launch: ModuleType) -> None:
    meta = pod(launch)["metadata"]
    assert (meta["name"], meta["namespace"]) == ("ada-1", "team-a")
    assert meta["labels"] == {"component": "kernel", "kernel_id": "1"}


@pytest.mark.parametrize(
    ("variable", "what", "amount"),
    [
        ("KERNEL_GPUS", "nvidia.com/gpu", "1"),
        # More than the default limits of deploy/team.
        ("KERNEL_MEMORY", "memory", "8Gi"),
        ("KERNEL_CPUS", "cpu", "4"),
    ],
)
def test_an_amount_that_is_asked_for_is_the_limit_too(
    launch: ModuleType, variable: str, what: str, amount: str
) -> None:
    """The API server refuses more than a LimitRange's default, and GPUs without a limit."""
    made = container(pod(launch, **{variable: amount}))["resources"]
    assert made["limits"] == {what: amount}
    assert made["requests"] == {**launch.REQUESTS, what: amount}


def test_a_kernel_without_volumes_does_not_wait_for_yaml(
    launch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)  # an import of it fails
    assert "volumes" not in pod(launch)["spec"]
    with pytest.raises(ImportError):
        pod(launch, KERNEL_VOLUMES="[]")


@pytest.mark.parametrize("file", SERVERS)
def test_no_server_starts_without_its_token(file: str) -> None:
    """Without the Secret its pod waits: a server without a token is open to everybody."""
    kinds = {one["kind"]: one for one in yaml.safe_load_all((ROOT / "deploy" / file).read_text())}
    (server,) = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    tokens = [one["valueFrom"] for one in server["env"] if one["name"].endswith("_TOKEN")]
    assert [list(one) for one in tokens] == [["secretKeyRef"]]
    assert not tokens[0]["secretKeyRef"].get("optional")


def test_users_choose_resources_volumes_and_folder(launch: ModuleType) -> None:
    assert container(pod(launch))["resources"] == {"requests": launch.REQUESTS}
    small = pod(launch, KERNEL_MEMORY_LIMIT="100Mi")
    assert container(small)["resources"] == {
        "requests": {"cpu": "100m"},
        "limits": {"memory": "100Mi"},
    }
    made = pod(
        launch,
        KERNEL_CPUS="1",
        KERNEL_MEMORY="1Gi",
        KERNEL_MEMORY_LIMIT="2Gi",
        KERNEL_GPUS_LIMIT="1",
        KERNEL_UID="2000",
        KERNEL_WORKING_DIR="/home/ada",
        KERNEL_VOLUMES="[{name: home, persistentVolumeClaim: {claimName: ada}}]",
        KERNEL_VOLUME_MOUNTS='[{"name": "home", "mountPath": "/home/ada"}]',
    )
    assert container(made)["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "1"},
    }
    assert made["spec"]["securityContext"]["runAsUser"] == 2000
    assert container(made)["workingDir"] == "/home/ada"
    assert made["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "ada"}
    assert container(made)["volumeMounts"] == [{"name": "home", "mountPath": "/home/ada"}]
    with pytest.raises(ValueError, match="KERNEL_VOLUMES is no list"):
        pod(launch, KERNEL_VOLUMES="home")


@pytest.mark.parametrize("folder", KERNELSPECS)
def test_the_kernelspecs_say_what_the_launcher_reads(launch: ModuleType, folder: str) -> None:
    spec = json.loads((ROOT / "deploy" / folder / "kernel.json").read_text())
    program, *words = spec["argv"][1:]
    assert Path(program).name == "launch.py"
    given = vars(launch.arguments([*words, "--of-a-later-release"]))
    encryption = given.pop("transport_encryption")
    assert encryption == ("{transport_encryption}" if "provisioners" in folder else "")
    assert given == {
        "kernel_id": "{kernel_id}",
        "port_range": "{port_range}",
        "response_address": "{response_address}",
        "public_key": "{public_key}",
        "kernel_class_name": "ciao_kernel.kernel.CiaoKernel",
    }


def test_encryption_is_passed_on_where_the_gateway_asks_for_it(launch: ModuleType) -> None:
    found = variables(pod(launch, "--transport-encryption", "required"))
    assert found["TRANSPORT_ENCRYPTION"] == "required"
