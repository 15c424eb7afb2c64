"""Cells that let pods build, run by a user with both Roles of deploy/rbac and nothing more."""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.faults.users import Rule
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import RBAC, Team, made, rules
from tests.e2e.jobs.test_kernel import environment
from tests.helpers.jobs import Ended


@dataclass
class Maker:
    """A user whose cells build images.

    Args:
        team: The user, the namespace, the folder.
        cluster: Its registry gets the images.
    """

    team: Team
    cluster: Cluster
    repository: str = field(default_factory=lambda: f"tests/{secrets.token_hex(4)}")

    @property
    def settings(self) -> dict[str, Any]:
        host = self.cluster.at.registry
        return {
            "plain_registries": (host,),
            "registry": f"{host}/{self.repository}",
            "kaniko_image": self.cluster.image("kaniko"),
            "images": {"tensorflow": self.cluster.image("python")},
        }

    def variables(self) -> dict[str, str]:
        """The same settings for a process, such as a kernel."""
        own = self.settings
        self.team.images.update(own["images"])
        return {
            **environment(self.team),
            "CIAO_REGISTRY": own["registry"],
            "CIAO_PLAIN_REGISTRIES": own["plain_registries"][0],
            "CIAO_KANIKO_IMAGE": own["kaniko_image"],
        }

    def run(self, code: str, *wishes: str, **more: Any) -> Ended:
        head = ["%framework=tensorflow", "%worker=1", *wishes]
        return self.team.run("\n".join([*head, code, ""]), **{**self.settings, **more})

    def lines(self, ended: Ended) -> list[str]:
        assert ended.error is None, (ended.error.message, ended.error.hint, ended.display.notices)
        return ended.display.data("worker-0").decode().splitlines()

    def builds(self) -> list[str]:
        """Pods and contexts of builds."""
        found = self.team.namespace.get("pods,configmaps")["items"]
        names = [str(item["metadata"]["name"]) for item in found]
        return [name for name in names if name.startswith("ciao-build-")]

    def tags(self) -> list[str]:
        """What the registry has in the repository; a build that failed leaves nothing there."""
        url = f"http://{self.cluster.at.registry}/v2/{self.repository}/tags/list"
        with contextlib.suppress(HTTPError), urlopen(url, timeout=10) as answer:
            return sorted(json.load(answer)["tags"] or ())
        return []

    def dockerfile(self, *lines: str) -> None:
        """Write a Dockerfile with these lines on the small image with Python."""
        text = "\n".join([f"FROM {self.cluster.image('python')}", *lines, ""])
        (self.team.folder / "Dockerfile").write_text(text)

    def secret(self, name: str, **data: str) -> None:
        """Create a Secret in the namespace."""
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        self.team.namespace.create_objects({**body, "stringData": data})

    def left(self) -> list[str]:
        """Those that do not go: a pod has a moment to end, and its context goes after it."""
        with contextlib.suppress(TimeoutError, ClusterError):
            until(lambda: not self.builds(), "all builds to be gone", 90, every=0.3)
        return self.builds()


@pytest.fixture
def maker(
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local_cluster: Cluster,
    with_kaniko: None,
) -> Maker:
    # The last is a comment there: whoever applies it names the Secrets.
    secret = Rule(["secrets"], ["get"])
    rights = [*rules(), *rules(RBAC / "builder-role.yaml"), secret]
    return Maker(made(namespace, tmp_path, monkeypatch, rights), local_cluster)
