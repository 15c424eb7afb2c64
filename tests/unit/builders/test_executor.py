"""The pod that builds, field by field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from packaging.version import Version

from ciao_kernel.builders import executor
from ciao_kernel.config import Settings
from ciao_kernel.model import BuildSpec, ClusterSpec, JobSpec, Notice, Source, SourceFile
from ciao_kernel.plugins import Build
from tests.cluster import pins

SETTINGS = Settings(kaniko_image="host/kaniko:1", plain_registries=("h:5",), build_memory="4Gi")


def pod(
    cluster: ClusterSpec = ClusterSpec(),  # noqa: B008
    hosts: tuple[str, ...] = (),
    settings: Settings = SETTINGS,
    architecture: str = "amd64",
    **wishes: Any,
) -> Any:
    nowhere = Path("/nowhere")
    spec = JobSpec("tensorflow", build=BuildSpec(**wishes), cluster=cluster)
    source = Source(SourceFile("a.py", b""))
    ask = Build(source, spec, "python3", "job", nowhere, nowhere, architecture=architecture)
    return executor.pod("ciao-build-x", "h:5/team/cells:ciao-env-1", ask, settings, hosts)


def test_it_is_a_bare_pod_with_the_least_rights_that_work() -> None:
    spec = pod()["spec"]
    (container,) = spec["containers"]

    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["activeDeadlineSeconds"] == 3600
    assert container["image"] == "host/kaniko:1"
    assert {one["value"] for one in container["env"]} == {"true"}
    assert {one["name"].removeprefix("FF_KANIKO_") for one in container["env"]} == {
        "HASH_DIR_FRAMING", "RESOLVE_CACHE_KEY", "RUN_HONOR_GROUP", "SCOPED_DOCKERIGNORE",
        "SKIP_WRITE_WHITEOUTS",
    }  # fmt: skip
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {
            "drop": ["ALL"],
            "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"],
        },
    }
    assert container["resources"]["limits"] == {"memory": "4Gi"}
    assert [volume["name"] for volume in spec["volumes"]] == ["context"]
    assert {
        "--compressed-caching=false", "--insecure-registry=h:5", "--push-retry=3",
        "--destination=h:5/team/cells:ciao-env-1", "--cache-repo=h:5/team/cells/cache",
    } <= set(container["args"])  # fmt: skip


def test_secrets_are_mounted_and_never_read() -> None:
    spec = pod(ClusterSpec(pull_secrets=("pull",)), push_secret="push", pip_secret="pip")["spec"]
    volumes = {one["name"]: one for one in spec["volumes"]}

    assert volumes["push"]["secret"] == {
        "secretName": "push",
        "items": [{"key": ".dockerconfigjson", "path": "config.json"}],
    }
    assert volumes["pip"]["secret"] == {
        "secretName": "pip",
        "defaultMode": 0o444,
        "items": [{"key": "pip.conf", "path": "pip.conf"}],
    }
    places = {one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    assert places == {"/kaniko/ciao", "/kaniko/.docker", "/etc/pip.conf"}
    assert spec["imagePullSecrets"] == [{"name": "pull"}]


def test_it_runs_where_the_replicas_can() -> None:
    assert pod()["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert "tolerations" not in pod()["spec"]
    wishes = ClusterSpec(tolerations=("arch=arm64:NoSchedule", "gpu"))
    spec = pod(wishes, architecture="arm64")["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert spec["tolerations"] == [
        {"key": "arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"},
        {"key": "gpu", "operator": "Exists"},
    ]


def test_settings_name_the_secrets_of_cells_that_name_none() -> None:
    settings = Settings(push_secret="ours", pip_secret="index")

    def secrets(**wishes: Any) -> dict[str, str]:
        volumes = pod(settings=settings, **wishes)["spec"]["volumes"]
        return {one["name"]: one["secret"]["secretName"] for one in volumes if "secret" in one}

    assert secrets() == {"push": "ours", "pip": "index"}
    assert secrets(push_secret="mine") == {"push": "mine", "pip": "index"}


def test_the_executor_is_a_release_of_the_maintained_fork() -> None:
    """Not a tag that moves with each release, and not older than the one that the tests run."""
    name, _, release = Settings().kaniko_image.rpartition(":")
    assert name == "ghcr.io/osscontainertools/kaniko"
    assert re.fullmatch(r"v\d+\.\d+\.\d+", release)
    tested = pins.version("github.com/GoogleContainerTools/kaniko", "kaniko")
    assert Version(release) >= Version(tested)


def test_an_authority_counts_for_the_registries_that_are_asked() -> None:
    args = pod(hosts=("a:1",))["spec"]["containers"][0]["args"]
    assert "--registry-certificate=a:1=/kaniko/ciao/ca.crt" in args


def test_lines_of_its_own_log_lose_their_stamps() -> None:
    def told(text: str) -> str:
        event = executor.without_log_prefix(Notice(text))
        assert isinstance(event, Notice)
        return event.text

    stamp = '[build] time="2026-11-21T22:32:33Z" level=info msg='
    assert told(f'{stamp}"RUN echo \\"a\\""') == '[build] RUN echo "a"'
    assert told(f"{stamp}word") == "[build] word"
    assert told("[build] time is short") == "[build] time is short"


def test_no_service_mesh_adds_a_container_to_it() -> None:
    meta = pod()["metadata"]
    istio = {"sidecar.istio.io/inject": "false"}
    assert meta["labels"] == istio
    assert meta["annotations"] == {**istio, "linkerd.io/inject": "disabled"}
