"""Who reaches whom by the NetworkPolicies of deploy/, with the labels that pods really have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ciao_kernel.backends.kubernetes.apis import (
    MPI_OPERATOR,
    OPERATOR_V1,
    TRAINER,
    Api,
    job_metadata,
    operator_v1,
    template_holder,
)
from tests.helpers.network import End, Host, Pod, Policy, connects, matches, read
from tests.unit.backends.kubernetes.manifests.test_manifest import objects
from tests.unit.deploy.test_launch import launch as launch
from tests.unit.deploy.test_launch import pod as launched

DEPLOY = Path(__file__).parents[3] / "deploy"
TEAM = sorted((DEPLOY / "team/network").glob("*.yaml"))
SERVERS = {"enterprise-gateway": "enterprise-gateway/gateway", "jupyter": "gateway-provisioners"}
EXAMPLE = "192.0.2.1"
"""For the API server's address, in all files."""
DNS = Pod({"k8s-app": "kube-dns"}, "kube-system")
CLIENT = Pod({}, "hub", {"ciao-kernel/clients": "allowed"})
STRANGER = Pod({}, "others")
API = Host(EXAMPLE)
WEB = Host("198.51.100.7")
INSIDE = Host("10.1.2.3")
METADATA = Host("169.254.169.254")


def kinds(folder: str, kind: str) -> list[Any]:
    found = [yaml.safe_load_all(file.read_text()) for file in (DEPLOY / folder).glob("*.yaml")]
    return [one for each in found for one in each if one and one.get("kind") == kind]


def server(name: str) -> Pod:
    """The gateway's pod, or the server's with gateway_provisioners, as deploy/ has it."""
    (deployment,) = kinds(SERVERS[name], "Deployment")
    (namespace,) = kinds(SERVERS[name], "Namespace")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    return Pod(labels, name, namespace["metadata"]["labels"], ip="10.244.0.9")


def replica(job: str, namespace: str = "team-a") -> Pod:
    return Pod({**job_metadata.labels(job), operator_v1.JOB_LABEL: job}, namespace, ip="10.244.0.8")


def indexed(job: str) -> Pod:
    """A replica of an Indexed Job, which has no label of the operator."""
    return Pod(job_metadata.labels(job), "team-a", ip="10.244.0.6")


@pytest.fixture(scope="module")
def kernel(launch: Any) -> Pod:
    """A kernel's pod as the launcher makes it."""
    return Pod(launched(launch)["metadata"]["labels"], "team-a", ip="10.244.0.7")


BUILD = Pod({job_metadata.MANAGED: "ciao"}, "team-a")
POLICIES: list[Policy] = [
    *read(*TEAM, namespace="team-a"),
    *(
        policy
        for name, folder in SERVERS.items()
        for policy in read(*sorted((DEPLOY / folder).glob("*.yaml")), namespace=name)
    ),
]


def allowed(start: End, end: End, port: int, protocol: str = "TCP") -> bool:
    return connects(POLICIES, start, end, port, protocol)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_and_its_kernels_reach_each_other_by_their_ports_alone(
    name: str, kernel: Pod
) -> None:
    gateway = server(name)
    assert allowed(kernel, gateway, 8877)
    assert allowed(gateway, kernel, 40123)  # a port that the kernel has chosen
    assert not allowed(kernel, gateway, 8888)
    assert allowed(gateway, API, 6443)
    assert allowed(gateway, DNS, 53, "UDP")
    for other in (WEB, INSIDE, METADATA, replica("mnist"), STRANGER):
        assert not allowed(gateway, other, 443)


@pytest.mark.parametrize("name", SERVERS)
def test_users_reach_a_server_from_namespaces_that_are_labelled(name: str) -> None:
    gateway = server(name)
    assert allowed(CLIENT, gateway, 8888)
    assert not allowed(CLIENT, gateway, 8877)
    for other in (STRANGER, replica("mnist"), BUILD, INSIDE):
        assert not allowed(other, gateway, 8888)
        assert not allowed(other, gateway, 8877)


def test_replicas_reach_replicas_and_nobody_else_in_the_cluster(kernel: Pod) -> None:
    one = replica("mnist")
    assert allowed(one, replica("mnist"), 2222)
    assert allowed(one, replica("mnist"), 23456)
    # A policy cannot say "of the same job": README.md says so.
    assert allowed(one, replica("other"), 2222)
    others = [kernel, BUILD, STRANGER, CLIENT, server("jupyter"), replica("mnist", "team-b")]
    for other in others:
        assert not allowed(other, one, 2222)
        assert not allowed(one, other, 443)
    assert allowed(one, DNS, 53, "UDP")
    for forbidden in (API, INSIDE, METADATA):
        assert not allowed(one, forbidden, 6443)
    assert allowed(one, WEB, 443)
    assert not allowed(one, WEB, 22)


def test_replicas_of_indexed_jobs_reach_each_other_and_nobody_else(kernel: Pod) -> None:
    one = indexed("mnist")
    assert allowed(one, indexed("mnist"), 23456)
    assert allowed(one, DNS, 53, "UDP")
    for other in (kernel, BUILD, STRANGER, CLIENT, server("jupyter")):
        assert not allowed(other, one, 23456)
        assert not allowed(one, other, 443)


@pytest.mark.parametrize(
    ("framework", "api"),
    [
        ("tensorflow", OPERATOR_V1),
        ("tensorflow", TRAINER),
        ("mpi", OPERATOR_V1),
        ("mpi", MPI_OPERATOR),
    ],
)
def test_pods_of_every_api_reach_each_other(framework: str, api: Api) -> None:
    text = f"%framework={framework}\n%image=i\n%worker=2\n"
    made = objects(text, api=api)
    pods = [
        Pod(template["metadata"]["labels"], "team-a", ip=f"10.244.0.{20 + number}")
        for number, template in enumerate(template_holder.pod_templates(made.holder).values())
    ]
    for one in pods:
        assert allowed(one, pods[0], 2222)
        assert allowed(one, DNS, 53, "UDP")
        assert not allowed(one, API, 6443)
        assert not allowed(STRANGER, one, 2222)


def test_launchers_alone_reach_the_api_server_where_a_team_has_mpi() -> None:
    policies = [*POLICIES, *read(DEPLOY / "team/mpi/launchers.yaml", namespace="team-a")]
    label = {operator_v1.ROLE_LABEL: "launcher"}
    one = replica("mnist")
    launcher = Pod({**one.labels, **label}, "team-a", ip="10.244.0.5")
    assert connects(policies, launcher, API, 6443)
    assert not allowed(launcher, API, 6443)
    for other in (one, indexed("mnist")):
        assert not connects(policies, other, API, 6443)
    assert not connects(policies, launcher, INSIDE, 6443)


def test_kernels_reach_the_api_server_and_registries_but_nothing_near(kernel: Pod) -> None:
    assert allowed(kernel, API, 6443)
    assert allowed(kernel, API, 443)
    assert allowed(kernel, WEB, 443)
    assert allowed(kernel, DNS, 53, "TCP")
    for other in (INSIDE, METADATA, replica("mnist"), STRANGER):
        assert not allowed(kernel, other, 443)
    for other in (STRANGER, CLIENT, replica("mnist"), BUILD):
        assert not allowed(other, kernel, 40123)


def test_build_pods_reach_registries_and_nobody_reaches_them(kernel: Pod) -> None:
    assert allowed(BUILD, WEB, 443)
    assert allowed(BUILD, WEB, 80)
    assert allowed(BUILD, DNS, 53, "UDP")
    for other in (API, INSIDE, METADATA):
        assert not allowed(BUILD, other, 6443)
    for other in (kernel, STRANGER, replica("mnist")):
        assert not allowed(other, BUILD, 80)


def test_a_team_without_the_way_out_reaches_nothing_outside(kernel: Pod) -> None:
    """As its file has it, the way out is a rule that an administrator may leave out."""
    inner = [one for one in POLICIES if one["metadata"]["name"] != "outside"]
    for pod in (kernel, BUILD, replica("mnist"), Pod({}, "team-a")):
        assert not connects(inner, pod, WEB, 443)
        assert not connects(inner, STRANGER, pod, 443)
        assert connects(inner, pod, DNS, 53, "UDP")
    # Without the rules for names too, a pod that nobody describes is closed.
    closed = [one for one in POLICIES if one["metadata"]["name"] == "closed"]
    assert not connects(closed, BUILD, WEB, 443)
    assert not connects(closed, WEB, BUILD, 443)


def test_each_address_of_the_api_server_is_the_example() -> None:
    """The documentation names the same one, and the same patch fits all files."""
    paths = [*TEAM, *(file for one in SERVERS.values() for file in (DEPLOY / one).glob("*.yaml"))]
    for policy in read(*paths, namespace="any"):
        if policy["metadata"]["name"] == "api-server":
            (rule,) = policy["spec"]["egress"]
            assert rule["to"][0]["ipBlock"]["cidr"] == f"{EXAMPLE}/32"
    values = yaml.safe_load((DEPLOY / "jupyterhub/values.yaml").read_text())
    (rule,) = values["singleuser"]["networkPolicy"]["egress"]
    assert rule["to"][0]["ipBlock"]["cidr"] == f"{EXAMPLE}/32"


def test_every_policy_of_the_team_is_in_its_kustomization() -> None:
    found = yaml.safe_load((DEPLOY / "team/network/kustomization.yaml").read_text())
    assert {*found["resources"], "kustomization.yaml"} == {file.name for file in TEAM}


# --------------------------------------------------------------------------- the model itself


def policy(**spec: Any) -> Policy:
    return {"metadata": {"namespace": "a"}, "spec": {"podSelector": {}, **spec}}


def test_a_pod_that_no_policy_selects_is_open() -> None:
    assert connects([], STRANGER, CLIENT, 1)
    assert connects([policy(policyTypes=["Ingress"])], Pod({}, "a"), STRANGER, 1)
    assert not connects([policy(policyTypes=["Ingress"])], STRANGER, Pod({}, "a"), 1)
    assert connects([policy(policyTypes=["Ingress"])], STRANGER, Pod({}, "b"), 1)


def test_what_policies_allow_adds_up() -> None:
    closed, open_ = policy(policyTypes=["Egress"]), policy(egress=[{}])
    assert not connects([closed], Pod({}, "a"), WEB, 1)
    assert connects([closed, open_], Pod({}, "a"), WEB, 1)


def test_a_peer_without_a_namespace_is_of_the_policys_own() -> None:
    near = policy(ingress=[{"from": [{"podSelector": {}}]}])
    assert connects([near], Pod({}, "a"), Pod({}, "a"), 1)
    assert not connects([near], Pod({}, "b"), Pod({}, "a"), 1)


def test_ports_may_be_ranges_and_have_protocols() -> None:
    some = policy(egress=[{"ports": [{"port": 10, "endPort": 12, "protocol": "UDP"}]}])
    tried = [(port, one) for port in (9, 10, 12, 13) for one in ("UDP", "TCP")]
    passed = [way for way in tried if connects([some], Pod({}, "a"), WEB, *way)]
    assert passed == [(10, "UDP"), (12, "UDP")]


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ({"key": "x", "operator": "In", "values": ["1"]}, True),
        ({"key": "x", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "x", "operator": "Exists"}, True),
        ({"key": "y", "operator": "Exists"}, False),
        ({"key": "y", "operator": "DoesNotExist"}, True),
        ({"key": "y", "operator": "NotIn", "values": ["1"]}, True),
    ],
)
def test_expressions_of_selectors(expression: dict[str, Any], selected: bool) -> None:
    assert matches({"matchExpressions": [expression]}, {"x": "1"}) is selected
    assert matches({"matchLabels": {"x": "1"}}, {"x": "1", "z": ""})
    assert not matches({"matchLabels": {"x": "2"}}, {"x": "1"})
