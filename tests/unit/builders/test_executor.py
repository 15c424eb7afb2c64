"""The pod that builds, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ciao_kernel.builders import executor
from ciao_kernel.config import Settings
from ciao_kernel.model import BuildSpec, ClusterSpec, JobSpec, Notice, Source, SourceFile
from ciao_kernel.plugins import Build


def pod(cluster: ClusterSpec = ClusterSpec(), hosts: tuple[str, ...] = (), **wishes: Any) -> Any:  # noqa: B008
    nowhere = Path("/nowhere")
    spec = JobSpec("tensorflow", build=BuildSpec(**wishes), cluster=cluster)
    ask = Build(Source(SourceFile("a.py", b"")), spec, "python3", "job", nowhere, nowhere)
    settings = Settings(kaniko_image="host/kaniko:1", plain_registries=("h:5",), build_memory="4Gi")
    return executor.pod("ciao-build-x", "h:5/team/cells:ciao-env-1", ask, settings, hosts)


def test_it_is_a_bare_pod_with_the_least_rights_that_work() -> None:
    spec = pod()["spec"]
    (container,) = spec["containers"]

    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["activeDeadlineSeconds"] == 3600
    assert container["image"] == "host/kaniko:1"
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
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
    assert volumes["pip"]["secret"]["defaultMode"] == 0o444
    places = {one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    assert places == {"/ciao", "/kaniko/.docker", "/etc/pip.conf"}
    assert spec["imagePullSecrets"] == [{"name": "pull"}]


def test_an_authority_counts_for_the_registries_that_are_asked() -> None:
    args = pod(hosts=("a:1",))["spec"]["containers"][0]["args"]
    assert "--registry-certificate=a:1=/ciao/ca.crt" in args


def test_lines_of_its_own_log_lose_their_stamps() -> None:
    def told(text: str) -> str:
        event = executor.told(Notice(text))
        assert isinstance(event, Notice)
        return event.text

    stamp = '[build] time="2026-11-21T22:32:33Z" level=info msg='
    assert told(f'{stamp}"RUN echo \\"a\\""') == '[build] RUN echo "a"'
    assert told(f"{stamp}word") == "[build] word"
    assert told("[build] time is short") == "[build] time is short"
