"""A user of one namespace: what is allowed, what is refused, and tokens that end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.faults.proxy import Proxy
from tests.cluster.faults.users import Rule, User
from tests.cluster.namespace import Kubernetes, Namespace
from tests.cluster.waiting import until

UNAUTHORIZED = "(Unauthorized)"
second = pytest.mark.second("rig")
READ_PODS = Rule(["pods", "pods/log"], ["get", "list", "watch"])


@pytest.fixture
def user(namespace: Namespace) -> User:
    made = User(namespace, READ_PODS)
    made.create()
    return made


@pytest.fixture
def admin(cluster: Kubernetes) -> Path:
    """The administrator's kubeconfig: the cluster's address and authority stand in it."""
    return Path(cluster.environment["KUBECONFIG"])


@pytest.fixture
def kubeconfig(admin: Path, user: User, tmp_path: Path) -> Path:
    return user.token().kubeconfig(tmp_path / "kubeconfig", admin)


@pytest.mark.stands_for("rig")
def test_the_user_may_do_what_the_rules_say(kubectl_as: Any, kubeconfig: Path) -> None:
    done = kubectl_as(kubeconfig, "get", "pods")

    assert done.returncode == 0, done.stderr


@second
@pytest.mark.parametrize(
    "refused",
    [
        ["get", "secrets"],
        ["create", "configmap", "mine"],
        ["run", "mine", "--image=tools"],
        ["get", "pods", "-n", "kube-system"],
        ["get", "pods", "--all-namespaces"],
        ["get", "nodes"],
    ],
    ids=" ".join,
)
def test_everything_else_is_forbidden(
    kubectl_as: Any, kubeconfig: Path, user: User, refused: list[str]
) -> None:
    done = kubectl_as(kubeconfig, *refused)

    assert done.returncode
    assert "orbidden" in done.stderr
    assert f"system:serviceaccount:{user.namespace.name}:user" in done.stderr


@second
def test_rights_can_be_taken_and_given(kubectl_as: Any, kubeconfig: Path, user: User) -> None:
    assert kubectl_as(kubeconfig, "get", "pods").returncode == 0

    user.allow()
    assert "(Forbidden)" in kubectl_as(kubeconfig, "get", "pods").stderr

    user.allow(READ_PODS)
    assert kubectl_as(kubeconfig, "get", "pods").returncode == 0


@second
@pytest.mark.slow
def test_a_token_ends_on_demand_and_the_user_comes_back_with_another(
    admin: Path, kubectl_as: Any, user: User, tmp_path: Path
) -> None:
    old, other = user.token(), user.token()
    before = old.kubeconfig(tmp_path / "before", admin)
    beside = other.kubeconfig(tmp_path / "beside", admin)
    assert kubectl_as(before, "get", "pods").returncode == 0

    old.invalidate()
    until(lambda: UNAUTHORIZED in kubectl_as(before, "get", "pods").stderr, "401", 30, every=0.5)

    assert kubectl_as(beside, "get", "pods").returncode == 0
    fresh = user.token().kubeconfig(tmp_path / "fresh", admin)
    assert kubectl_as(fresh, "get", "pods").returncode == 0


@second
def test_a_token_that_was_never_used_is_refused_at_once(
    admin: Path, kubectl_as: Any, user: User, tmp_path: Path
) -> None:
    token = user.token()
    kubeconfig = token.kubeconfig(tmp_path / "kubeconfig", admin)

    token.invalidate()

    assert UNAUTHORIZED in kubectl_as(kubeconfig, "get", "pods").stderr


@second
def test_a_user_goes_through_the_proxy(
    proxy: Proxy, kubectl_as: Any, kubeconfig: Path, tmp_path: Path
) -> None:
    through = proxy.kubeconfig(tmp_path / "through", like=kubeconfig)
    assert kubectl_as(through, "get", "pods").returncode == 0
    assert "(Forbidden)" in kubectl_as(through, "get", "nodes").stderr
    assert proxy.traffic.accepted == 2
