"""What the API server makes of deploy/team and of the other folders of deploy/."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.gateway.place import DEPLOY, api_server, listens, patch
from tests.e2e.gateway.test_gateway_bounds import ENFORCE, HARMFUL, pod, said

pytestmark = [pytest.mark.slow, pytest.mark.second("gateway")]
FOLDERS = [
    "enterprise-gateway/gateway",
    "enterprise-gateway/ingress",
    "enterprise-gateway/namespaces",
    "enterprise-gateway/team",
    "gateway-provisioners",
    "gateway-provisioners/team",
    "jupyterhub/jobs",
    "rbac",
    "team",
]
NETWORK = {"api-server", "closed", "dns", "kernels", "outside", "replicas", "replicas-of-ciao"}


def overlay(folder: Path, base: str, namespace: str, **more: Any) -> str:
    """A kustomization of deploy/ for another namespace; returns its folder."""
    path = os.path.relpath(DEPLOY / base, folder.resolve())
    content = {"namespace": namespace, "resources": [path], **more}
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return str(folder)


@pytest.fixture(scope="module")
def team(local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A team's namespace as an administrator makes it: by an overlay, and nothing else."""
    made = Namespace(local_cluster, "team")
    changes = [patch("NetworkPolicy", [api_server(local_cluster)], "api-server")]
    folder = overlay(tmp_path_factory.mktemp("team"), "team", made.name, patches=changes)
    try:
        local_cluster.kubectl("apply", "--server-side", "-k", folder)
        until(lambda: made.find("serviceaccount/default"), "the service account", 90)
        # Until the quota is counted, every pod is refused.
        until(lambda: not refusal(made, pod()), "the quota to be in force", 30)
        yield made
    finally:
        made.delete()


def refusal(team: Namespace, manifest: dict[str, Any]) -> str:
    """What the API server says to a try to create something; "" means that it would."""
    return said(lambda: team.cluster.api.create(team.name, manifest, dry_run=True))


@pytest.mark.parametrize("word", HARMFUL)
def test_no_pod_of_a_team_reaches_the_node(team: Namespace, word: str) -> None:
    *parts, reason = HARMFUL[word]
    refused = refusal(team, pod(*parts))
    assert 'violates PodSecurity "baseline:latest"' in refused
    assert reason in refused


def test_a_pod_without_resources_gets_those_of_the_team(team: Namespace) -> None:
    made = team.cluster.api.create(team.name, pod(), dry_run=True)
    (container,) = made["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "4Gi"},
    }


@pytest.mark.parametrize(
    ("resource", "amount"), [("cpu", "65"), ("memory", "257Gi"), ("nvidia.com/gpu", "9")]
)
def test_more_than_the_teams_share_is_refused(team: Namespace, resource: str, amount: str) -> None:
    large = {"requests": {resource: amount}, "limits": {resource: amount}}
    refused = refusal(team, pod(container={"resources": large}))
    assert "exceeded quota: team" in refused
    assert f"requests.{resource}={amount}" in refused


def test_the_rules_of_its_network_are_there(team: Namespace) -> None:
    """This cluster enforces none: tests/e2e/policies tries them on one that does."""
    found = team.get("networkpolicies.networking.k8s.io")["items"]
    assert {one["metadata"]["name"] for one in found} == NETWORK
    policies = {one["metadata"]["name"]: one["spec"] for one in found}
    assert policies["closed"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (rule,) = policies["api-server"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": f"{listens(team.cluster)[0]}/32"}}]


def test_its_queue_is_for_clusters_with_kueue(
    team: Namespace, local_cluster: Cluster, tmp_path: Path
) -> None:
    """Nobody else could apply the folder, which is why it is one of its own."""
    folder = overlay(tmp_path, "team/kueue", team.name)
    assert "kind: LocalQueue" in local_cluster.kubectl("kustomize", folder)
    words = ("apply", "--server-side", "--dry-run=server", "-k", folder)
    assert 'no matches for kind "LocalQueue"' in said(lambda: local_cluster.kubectl(*words))


@pytest.mark.parametrize("base", FOLDERS)
def test_the_api_server_takes_each_folder(namespace: Namespace, base: str, tmp_path: Path) -> None:
    folder = overlay(tmp_path, base, namespace.name)
    words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", folder)
    taken = namespace.cluster.kubectl(*words)
    assert "(server dry run)" in taken


@pytest.mark.parametrize("base", ["enterprise-gateway/gateway", "gateway-provisioners"])
def test_a_servers_pod_meets_the_level_of_its_namespace(
    local_cluster: Cluster, base: str, tmp_path: Path
) -> None:
    """As the controller of its Deployment makes it; the token's Secret need not be there yet."""
    at = Namespace(local_cluster, "server", {ENFORCE: "restricted"})
    at.create()
    try:
        text = local_cluster.kubectl("kustomize", overlay(tmp_path, base, at.name))
        objects = list(yaml.safe_load_all(text))
        (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
        (account,) = [one for one in objects if one["kind"] == "ServiceAccount"]
        at.create_objects(account)
        template = deployment["spec"]["template"]
        meta = {**template["metadata"], "name": f"pod-{secrets.token_hex(3)}"}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
        assert not said(lambda: at.cluster.api.create(at.name, made, dry_run=True))
        weaker = {**made["spec"], "securityContext": {}}
        with pytest.raises(ClusterError, match="violates PodSecurity"):
            at.cluster.api.create(at.name, {**made, "spec": weaker}, dry_run=True)
    finally:
        at.delete()
