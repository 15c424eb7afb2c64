"""What deploy/enterprise-gateway/namespaces lets the gateway's account do, and what not."""

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
from tests.cluster.rights import account, may, wait_until_may
from tests.cluster.waiting import until
from tests.e2e.gateway.place import DEPLOY

# What is named enterprise-gateway in the whole cluster is test_enterprise_gateway.py's too.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("gateway"),
    pytest.mark.second("gateway"),
]
RIGHTS = {
    "ServiceAccount", "ClusterRole", "ClusterRoleBinding",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
ALLOWED = {"ciao-kernel/kernels": "allowed"}
ENFORCE = "pod-security.kubernetes.io/enforce"
VERSION = "pod-security.kubernetes.io/enforce-version"
HARMFUL: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "hostPath": ({"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}, {}, "hostPath"),
    "hostNetwork": ({"hostNetwork": True}, {}, "hostNetwork=true"),
    "hostPID": ({"hostPID": True}, {}, "hostPID=true"),
    "hostIPC": ({"hostIPC": True}, {}, "hostIPC=true"),
    "hostPort": ({}, {"ports": [{"containerPort": 80, "hostPort": 80}]}, "hostPort"),
    "privileged": ({}, {"securityContext": {"privileged": True}}, "privileged=true"),
    "capability": ({}, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "SYS_ADMIN"),
    "seccomp": (
        {}, {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile",
    ),
    "AppArmor": (
        {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, {}, "AppArmor",
    ),
    "SELinux": ({}, {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "seLinuxOptions"),
    "sysctls": (
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        {}, "forbidden sysctls",
    ),
}  # fmt: skip
"""What the node is reached by, of a pod and of its container; and a word of the refusal."""


def meta(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": name, **({"labels": labels} if labels else {})}


def pod(spec: dict[str, Any] | None = None, container: dict[str, Any] | None = None) -> Any:
    main = {"name": "kernel", "image": "registry.example.com/kernel", **(container or {})}
    whole = {"containers": [main], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta("pod"), "spec": whole}


def for_kernel(name: str, **changes: str) -> Any:
    """A namespace for a kernel; changes are of its labels, "" leaves one out."""
    labels = {"app": "enterprise-gateway", "component": "kernel", "kernel_id": name}
    labels |= {ENFORCE: "baseline", **changes}
    given = {key: value for key, value in labels.items() if value}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta(name, given)}


class Account:
    """The gateway's, with the rights that deploy/ gives it.

    Args:
        cluster: Where.
        home: Its namespace.
        older: A namespace that is older than the policies, and has no level of Pod Security.
    """

    def __init__(self, cluster: Cluster, home: str, older: str) -> None:
        self.cluster, self.home, self.older = cluster, home, older
        self.name = account(home, "enterprise-gateway")

    def kubectl(self, *words: str, text: str | None = None) -> str:
        return self.cluster.kubectl(f"--as={self.name}", *words, text=text)

    def make(self, manifest: dict[str, Any], namespace: str = "", *words: str) -> None:
        """Create something."""
        where = ["-n", namespace] if namespace else []
        self.kubectl("create", *where, *words, "-f", "-", text=json.dumps(manifest))

    def refusal(self, manifest: dict[str, Any], namespace: str = "") -> str:
        """What the API server says to a try to create something; "" means that it would."""
        return said(lambda: self.make(manifest, namespace, "--dry-run=server"))


def said(ask: Any) -> str:
    try:
        ask()
    except ClusterError as error:
        return str(error)
    return ""


def refusal_of(cluster: Cluster, labels: dict[str, str]) -> str:
    """What an administrator learns who tries to create a namespace; "" means that it would be."""
    tried = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("tried", labels)})
    return said(lambda: cluster.kubectl("create", "--dry-run=server", "-f", "-", text=tried))


def binding(role: str, account: str, namespace: str, kind: str = "ClusterRole") -> Any:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": meta(role),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


@pytest.fixture(scope="module")
def gateway(local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """The account, in force. Its Deployment is not there: other tests start kernels by it."""
    folder: Path = tmp_path_factory.mktemp("rights")
    home = Namespace(local_cluster, "gateway")
    base = os.path.relpath(DEPLOY / "enterprise-gateway/namespaces", folder.resolve())
    overlay = {"namespace": home.name, "resources": [base]}
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    rendered = yaml.safe_load_all(local_cluster.kubectl("kustomize", str(folder)))
    rights = yaml.safe_dump_all([one for one in rendered if one["kind"] in RIGHTS])
    home.create()
    older = Namespace(local_cluster, "older", ALLOWED)
    # Those of other tests are in force for a moment after they are deleted.
    until(lambda: not refusal_of(local_cluster, ALLOWED), "earlier policies to end", 60)
    older.create()  # before there are policies
    try:
        local_cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=rights)
        made = Account(local_cluster, home.name, older.name)
        # It takes a moment until rights and a policy are in force.
        wait_until_may(local_cluster, made.name, [("create", "namespaces"), ("create", "pods")])
        rule = "ciao-kernel/kernels=allowed"
        until(lambda: rule in made.refusal(pod(), "kube-system"), "the policy to be in force", 30)
        yield made
    finally:
        local_cluster.kubectl("delete", "--ignore-not-found", "-f", "-", text=rights)
        home.delete()
        older.delete()


@pytest.fixture(scope="module")
def made(gateway: Account) -> Iterator[str]:
    """A namespace as deploy/ has Enterprise Gateway make one for a kernel, made by its account."""
    name = f"ada-{secrets.token_hex(4)}"
    gateway.make(for_kernel(name))
    api = gateway.cluster.api
    until(lambda: not said(lambda: api.get(name, "serviceaccount/default")), "its account", 30)
    yield name
    # As the gateway does when the kernel ends.
    gateway.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def team(local_cluster: Cluster) -> Iterator[Namespace]:
    """A namespace that is there already, and which nobody has given to the gateway."""
    namespace = Namespace(local_cluster, "others")
    namespace.create()
    yield namespace
    namespace.delete()


def test_it_starts_kernels_in_namespaces_that_it_made(gateway: Account, made: str) -> None:
    assert not gateway.refusal(pod(), made)
    assert not gateway.refusal(binding("ciao-user", "default", made), made)
    gateway.make(pod(), made)
    gateway.kubectl("delete", "pod", "pod", "-n", made, "--wait=false")


@pytest.mark.parametrize("namespace", ["kube-system", "default"])
def test_it_starts_none_in_a_namespace_of_others(gateway: Account, namespace: str) -> None:
    assert "ciao-kernel/kernels=allowed" in gateway.refusal(pod(), namespace)


def test_an_administrator_may_let_it_start_kernels_in_a_namespace(
    gateway: Account, team: Namespace
) -> None:
    assert "ciao-kernel/kernels=allowed" in gateway.refusal(pod(), team.name)
    team.kubectl("create", "-f", "-", text=json.dumps(pod(container={"image": "x"})))
    removed = ("delete", "pod", "pod", "-n", team.name, "--wait=false")
    assert "ciao-kernel/kernels=allowed" in said(lambda: gateway.kubectl(*removed))
    team.label({ENFORCE: "baseline", **ALLOWED})
    other = {**pod(), "metadata": meta("other")}
    until(lambda: not gateway.refusal(other, team.name), "the label to be seen", 30)
    gateway.kubectl(*removed)
    assert "hostPath" in gateway.refusal(pod(*HARMFUL["hostPath"][:2]), team.name)
    # Roles it binds in its own only.
    assert "that it has created" in gateway.refusal(
        binding("ciao-user", "default", team.name), team.name
    )


def test_it_neither_changes_nor_deletes_namespaces_of_others(
    gateway: Account, team: Namespace
) -> None:
    # So it puts its labels on none of them.
    given = {
        v: may(gateway.cluster, gateway.name, v, "namespaces")
        for v in ("create", "delete", "update", "patch")
    }
    assert given == {"create": True, "delete": True, "update": False, "patch": False}
    for name in (team.name, gateway.home):
        words = ("delete", "namespace", name, "--dry-run=server")
        assert "may only create and delete" in said(lambda words=words: gateway.kubectl(*words))
    labels = {ENFORCE: "baseline", **ALLOWED}
    bare = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta("ada", labels)}
    assert "may only create and delete" in gateway.refusal(bare)


@pytest.mark.parametrize("level", ["", "privileged"])
def test_it_makes_no_namespace_without_pod_security(gateway: Account, level: str) -> None:
    assert not gateway.refusal(for_kernel("ada-1"))
    assert not gateway.refusal(for_kernel("ada-1", **{ENFORCE: "restricted"}))
    refused = gateway.refusal(for_kernel("ada-1", **{ENFORCE: level}))
    assert "must enforce a level of Pod Security" in refused


@pytest.mark.parametrize("label", [VERSION, *ALLOWED, "other"])
def test_it_sets_no_other_label_on_a_namespace(gateway: Account, label: str) -> None:
    """Pod Security of Kubernetes 1.18 lets pods without seccomp pass."""
    refused = gateway.refusal(for_kernel("ada-1", **{label: "v1.18"}))
    assert "may set only the labels" in refused


@pytest.mark.parametrize("level", ["", "privileged"])
def test_nobody_takes_pod_security_from_a_namespace_with_kernels(
    gateway: Account, made: str, level: str
) -> None:
    change = f"{ENFORCE}={level}" if level else f"{ENFORCE}-"
    words = ("label", "namespace", made, change, "--overwrite", "--dry-run=server")
    refused = said(lambda: gateway.cluster.kubectl(*words))
    assert "must enforce a level of Pod Security" in refused


def test_a_namespace_without_pod_security_is_not_allowed_for_kernels(
    gateway: Account, local_cluster: Cluster
) -> None:
    others = Namespace(local_cluster, "bare")
    others.create()
    try:
        label = "ciao-kernel/kernels=allowed"
        words = ("label", "namespace", others.name, label, "--dry-run=server")
        refused = said(lambda: local_cluster.kubectl(*words))
        assert f"Set the label {ENFORCE} to baseline or restricted" in " ".join(refused.split())
        assert not said(lambda: local_cluster.kubectl(*words, f"{ENFORCE}=baseline"))
    finally:
        others.delete()


def test_it_starts_no_kernel_in_an_older_namespace_without_pod_security(gateway: Account) -> None:
    assert "that enforce a level of Pod Security" in gateway.refusal(pod(), gateway.older)
    # What runs there already it may end.
    admin = gateway.cluster.kubectl
    admin("create", "-n", gateway.older, "-f", "-", text=json.dumps(pod(container={"image": "x"})))
    gateway.kubectl("delete", "pod", "pod", "-n", gateway.older, "--wait=false")


def test_it_binds_nothing_but_the_kernels_role_to_accounts_of_its_namespaces(
    gateway: Account, made: str
) -> None:
    assert "not currently held" in gateway.refusal(binding("cluster-admin", "default", made), made)
    # What it has itself RBAC would let it give away.
    bound = "may bind only the ClusterRole ciao-user"
    assert bound in gateway.refusal(binding("enterprise-gateway", "default", made), made)
    assert bound in gateway.refusal(binding("ciao-user", "default", "kube-system"), made)


@pytest.mark.parametrize("word", HARMFUL)
@pytest.mark.parametrize("who", ["gateway", "whoever"])
def test_no_pod_of_its_namespaces_reaches_the_node(
    gateway: Account, made: str, word: str, who: str
) -> None:
    """Also none that the operator creates, for whoever may create jobs."""
    *parts, reason = HARMFUL[word]
    harmful = pod(*parts)
    if who == "gateway":
        refused = gateway.refusal(harmful, made)
    else:
        words = ("create", "-n", made, "--dry-run=server", "-f", "-")
        refused = said(lambda: gateway.cluster.kubectl(*words, text=json.dumps(harmful)))
    assert 'violates PodSecurity "baseline:latest"' in refused
    assert reason in refused
