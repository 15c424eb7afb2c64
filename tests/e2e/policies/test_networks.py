"""Each NetworkPolicy of deploy/ in force: which connections pods can open, and which they cannot.

tests/unit/deploy/test_network.py reads the same policies by tests/helpers/network.py, whose answers
are compared with the network's here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ciao_kernel.backends.kubernetes.apis import job_metadata, operator_v1
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.gateway.place import DEPLOY, api_server, listens, patch
from tests.e2e.policies.outside import METADATA, NEAR, WEB, Outside
from tests.e2e.policies.reach import End, Way
from tests.helpers import network

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.second("gateway"),
    pytest.mark.xdist_group("policies"),
]
PORTS = (443, 2222, 8877, 8888, 23456, 40123)
"""Where all pods take connections: their programs', and one that a program chooses by chance."""
JOB = {**job_metadata.labels("mnist"), operator_v1.JOB_LABEL: "mnist"}
OTHER_JOB = {**job_metadata.labels("other"), operator_v1.JOB_LABEL: "other"}
KERNEL = {"component": "kernel"}
SERVERS = {"enterprise-gateway": "enterprise-gateway/gateway", "jupyter": "gateway-provisioners"}


def rendered(
    base: str, tmp_path: Path, cluster: Cluster, namespace: str, policy: str = "api-server"
) -> list[dict[str, Any]]:
    """The objects of a folder of deploy/ for a namespace, with this cluster's API server."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    overlay = {
        "namespace": namespace,
        "resources": [os.path.relpath(DEPLOY / base, tmp_path.resolve())],
        "patches": [patch("NetworkPolicy", [api_server(cluster)], policy)],
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(tmp_path))))


def only(kind: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


@dataclass(frozen=True)
class Place:
    """Pods of two teams, of servers and of others, and all policies of deploy/ for them."""

    ends: Mapping[str, End]
    policies: list[dict[str, Any]]
    ways: Mapping[str, Way]
    before: Mapping[str, set[str]]
    """What each reached before there were policies."""

    def reached(self, *names: str) -> dict[str, set[str]]:
        """What these ends reach now; all of them by default."""
        asked = names or tuple(self.ends)
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda name: self.ends[name].reached(self._of_others(name)), asked)
            return dict(zip(asked, found, strict=True))

    def _of_others(self, name: str) -> dict[str, Way]:
        return {way: to for way, to in self.ways.items() if way.partition(":")[0] != name}


@pytest.fixture(scope="module")
def place(
    enforced: Cluster, outside: Outside, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("deploy")
    spaces: dict[str, Namespace] = {}

    def space(name: str, labels: dict[str, str] | None = None) -> Namespace:
        spaces[name] = Namespace(enforced, name, labels)
        spaces[name].create()
        return spaces[name]

    try:
        team = space("team-a")
        policies = rendered("team/network", folder / "team", enforced, team.name)
        ends = {
            "first": End(team, "first", JOB, PORTS),
            "second": End(team, "second", JOB, PORTS),
            "other-job": End(team, "other-job", OTHER_JOB, PORTS),
            "indexed": End(team, "indexed", job_metadata.labels("plain"), PORTS),
            "indexed-1": End(team, "indexed-1", job_metadata.labels("plain"), PORTS),
            "kernel": End(team, "kernel", KERNEL, PORTS),
            "build": End(team, "build", {job_metadata.MANAGED: "ciao"}, PORTS),
            "foreign": End(space("team-b"), "foreign", JOB, PORTS),
            "client": End(space("hub", {"ciao-kernel/clients": "allowed"}), "client", {}, PORTS),
            "stranger": End(space("others"), "stranger", {}, PORTS),
        }
        for name, base in SERVERS.items():
            at = folder / name
            (described,) = only("Namespace", rendered(base, at, enforced, "any"))
            around = described["metadata"]["labels"]
            own = space(name, {k: v for k, v in around.items() if k.startswith("ciao-kernel/")})
            objects = rendered(base, at, enforced, own.name)
            (deployment,) = only("Deployment", objects)
            policies += only("NetworkPolicy", objects)
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            ends[name] = End(own, name, labels, PORTS)
        for end in ends.values():
            end.start()
        for end in ends.values():
            end.wait()
        ways = _ways(enforced, ends)
        made = Place(ends, policies, ways, {})
        before = made.reached()
        for policy in policies:
            enforced.api.create(policy["metadata"]["namespace"], policy)
        yield Place(ends, policies, ways, before)
    finally:
        for namespace in spaces.values():
            namespace.delete()


def _ways(cluster: Cluster, ends: Mapping[str, End]) -> dict[str, Way]:
    """All connections that are tried, by a name `END:PORT`."""
    address, port = listens(cluster)
    (dns,) = cluster.api.get("kube-system", "pods", "-l", "k8s-app=kube-dns")["items"]
    ways: dict[str, Way] = {
        f"API:{port}": (address, port, "TCP"),
        "API:service": (cluster.at.api_service, 443, "TCP"),
        "DNS:service": (cluster.at.dns_service, 53, "UDP"),
        "DNS:UDP": (dns["status"]["podIP"], 53, "UDP"),
        "DNS:TCP": (dns["status"]["podIP"], 53, "TCP"),
        "DNS:8181": (dns["status"]["podIP"], 8181, "TCP"),
        "web:443": (WEB, 443, "TCP"),
        "web:80": (WEB, 80, "TCP"),
        "web:22": (WEB, 22, "TCP"),
        "near:443": (NEAR, 443, "TCP"),
        "metadata:80": (METADATA, 80, "TCP"),
    }
    for name, end in ends.items():
        ways |= {f"{name}:{number}": (end.address, number, "TCP") for number in PORTS}
    return ways


def every(*names: str) -> set[str]:
    """All ports of some ends."""
    return {f"{name}:{port}" for name in names for port in PORTS}


REPLICAS = ("first", "second", "other-job", "indexed", "indexed-1")
NAMES = {"DNS:service", "DNS:UDP", "DNS:TCP"}
PUBLIC = {"web:443", "web:80"}
API = {"API:6443", "API:service"}
EVERYWHERE = {
    "API:6443", "API:service", "DNS:8181", "web:22", "near:443", "metadata:80", *NAMES, *PUBLIC,
}  # fmt: skip


def expected(name: str) -> set[str]:
    """What an end shall reach."""
    reports = {"enterprise-gateway:8877", "jupyter:8877"}
    if name in REPLICAS:
        # A policy cannot say "of the same job": deploy/team/README.md says so.
        return {*every(*(other for other in REPLICAS if other != name)), *NAMES, *PUBLIC}
    if name == "build":
        return {*NAMES, *PUBLIC}
    if name == "kernel":
        return {*NAMES, *PUBLIC, *API, *reports}
    if name in SERVERS:
        return {*every("kernel"), *NAMES, *API}
    # Pods of namespaces without rules: they open what they like, and the other end refuses.
    near = [other for other in ("foreign", "client", "stranger") if other != name]
    users = {f"{server}:8888" for server in SERVERS} if name == "client" else set()
    return {*EVERYWHERE, *every(*near), *users}


def test_without_policies_everybody_reaches_everybody(place: Place) -> None:
    """So that what is refused later is refused by a policy."""
    for name, reached in place.before.items():
        others = [other for other in place.ends if other != name]
        assert reached == {*EVERYWHERE, *every(*others)}, name


def test_exactly_what_shall_pass_passes(place: Place) -> None:
    wanted = {name: expected(name) for name in place.ends}
    found: dict[str, set[str]] = {}

    def settled() -> bool:
        found.update(place.reached())
        return found == wanted

    try:
        until(settled, "the policies to be in force", 90, every=1)
    except ClusterError:
        wrong = {name: sorted(found[name] ^ wanted[name]) for name in wanted}
        pytest.fail(f"open but not wanted, or wanted but closed: {wrong}")


def test_what_the_model_of_other_tests_says_is_what_the_network_does(place: Place) -> None:
    """tests/helpers/network.py reads policies for tests on clusters that enforce none."""

    def around(end: End) -> dict[str, str]:
        found = end.namespace.cluster.api.get("", f"namespace/{end.namespace.name}")
        return dict(found["metadata"]["labels"])

    pods: dict[str, network.End] = {
        name: network.Pod(end.labels, end.namespace.name, around(end), end.address)
        for name, end in place.ends.items()
    }
    others: dict[str, network.End] = {
        "DNS": network.Pod({"k8s-app": "kube-dns"}, "kube-system", ip=place.ways["DNS:UDP"][0]),
        "API": network.Host(place.ways["API:6443"][0]),
        **{n: network.Host(ip) for n, ip in (("web", WEB), ("near", NEAR), ("metadata", METADATA))},
    }
    for name, start in pods.items():
        said = {
            way
            for way, (_, port, protocol) in place.ways.items()
            if (other := way.partition(":")[0]) != name and not way.endswith(":service")
            if network.connects(place.policies, start, {**pods, **others}[other], port, protocol)
        }
        assert said == {way for way in expected(name) if not way.endswith(":service")}, name


def test_a_team_without_the_way_out_reaches_nothing_outside(place: Place) -> None:
    """An administrator may leave out the file outside.yaml."""
    team = place.ends["first"].namespace
    team.cluster.api.delete(team.name, "networkpolicy/outside")
    inside = ("first", "indexed", "build", "kernel")
    wanted = {name: expected(name) - PUBLIC for name in inside}
    try:
        until(lambda: place.reached(*inside) == wanted, "the way out to be closed", 60, every=1)
    finally:
        (out,) = [one for one in place.policies if one["metadata"]["name"] == "outside"]
        team.create_objects(out)


def test_users_pods_of_a_hub_reach_the_api_server_by_the_charts_value(
    enforced: Cluster, outside: Outside
) -> None:
    """The chart adds the rule of values.yaml to its own policy, which closes private addresses."""
    values = yaml.safe_load((DEPLOY / "jupyterhub/values.yaml").read_text())
    (rule,) = values["singleuser"]["networkPolicy"]["egress"]
    rule["to"] = [{"ipBlock": api_server(enforced)["value"]}]
    hub = Namespace(enforced, "hub")
    hub.create()
    try:
        user = End(hub, "user", {"component": "singleuser-server"}, PORTS)
        user.start()
        user.wait()
        address, port = listens(enforced)
        ways: dict[str, Way] = {
            "API": (address, port, "TCP"),
            "API's service": (enforced.at.api_service, 443, "TCP"),
            "another port": (address, 10250, "TCP"),
            "near": (NEAR, 443, "TCP"),
        }
        assert user.reached(ways) == set(ways)
        spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]}
        head = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
        hub.create_objects({**head, "metadata": {"name": "singleuser"}, "spec": spec})
        wanted = {"API", "API's service"}
        until(lambda: user.reached(ways) == wanted, "the rule to be in force", 60, every=1)
    finally:
        hub.delete()
