"""The pods of the servers in deploy/, their images, and the Ingress before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
SERVERS = ("enterprise-gateway/gateway/gateway.yaml", "gateway-provisioners/jupyter.yaml")
PLACEHOLDER = "registry.example.com/"
"""For images that users build themselves."""
BY_VERSION = {"elyra/enterprise-gateway:3.3.0"}
"""Without a digest: README.md tells how to pin it."""


def pod(file: str) -> Any:
    objects = yaml.safe_load_all((DEPLOY / file).read_text())
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    return deployment["spec"]["template"]["spec"]


@pytest.mark.parametrize("file", SERVERS)
def test_a_server_writes_to_volumes_alone(file: str) -> None:
    spec = pod(file)
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert volumes[mounts["/tmp"]]["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize("file", SERVERS)
def test_a_server_has_a_limit_of_memory_and_probes(file: str) -> None:
    (container,) = pod(file)["containers"]
    assert container["resources"]["limits"].keys() == {"memory"}
    assert container["resources"]["requests"].keys() == {"memory", "cpu"}
    ready, alive = container["readinessProbe"], container["livenessProbe"]
    # By HTTP: a program that hangs still takes connections.
    assert ready["httpGet"] == alive["httpGet"]
    # A server that is started again loses its kernels, so a busy one gets time.
    assert alive["periodSeconds"] * alive["failureThreshold"] >= 120


def images(value: Any) -> Iterator[str]:
    """All images that a file names."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key in ("image", "image_name") and isinstance(one, str):
                yield one
            yield from images(one)
    elif isinstance(value, list):
        for one in value:
            yield from images(one)


def test_images_of_others_are_pinned() -> None:
    named = {
        image
        for file in [*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("kernel.json")]
        for document in yaml.safe_load_all(file.read_text())
        for image in images(document)
    }
    named |= {
        line.split()[1]
        for file in DEPLOY.rglob("Dockerfile")
        for line in file.read_text().splitlines()
        if line.startswith("FROM ")
    }
    others = {image for image in named if not image.startswith(PLACEHOLDER)}
    loose = {one for one in others if not re.fullmatch(r"[^@]+:[^@]+@sha256:[0-9a-f]{64}", one)}
    assert loose == BY_VERSION
    assert others > loose


def test_the_ingress_has_tls_and_leads_to_the_gateway() -> None:
    ingress = yaml.safe_load((DEPLOY / "enterprise-gateway/ingress/ingress.yaml").read_text())
    (rule,) = ingress["spec"]["rules"]
    (tls,) = ingress["spec"]["tls"]
    assert tls["hosts"] == [rule["host"]]
    (path,) = rule["http"]["paths"]
    objects = yaml.safe_load_all((DEPLOY / SERVERS[0]).read_text())
    (service,) = [one for one in objects if one["kind"] == "Service"]
    assert path["backend"]["service"] == {
        "name": service["metadata"]["name"],
        "port": {"name": service["spec"]["ports"][0]["name"]},
    }
