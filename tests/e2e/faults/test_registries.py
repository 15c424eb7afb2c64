"""Registries that want a password or a token, over http and over TLS of an own authority."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faults import pushing, registries
from tests.cluster.faults.registries import OWNER, READER, Account, Kind, Registry
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.workers import own

pytestmark = pytest.mark.second("rig")
StartPod = Callable[..., None]
STRANGER = Account("owner", "not the password")


@pytest.fixture(params=registries.KINDS, ids=lambda kind: kind.name)
def registry(local_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Registry]:
    kind: Kind = request.param
    with Registry(local_cluster, own(kind)) as made:
        yield made


def push(registry: Registry) -> str:
    return pushing.push_tiny(pushing.client(registry, OWNER), registry.host, "tests/tiny")


def use(registry: Registry, account: Account, namespace: Namespace) -> dict[str, object]:
    """Create a pull secret, and return what a pod that uses it has in its spec."""
    namespace.create_objects(registries.pull_secret(registry.host, account))
    return {"imagePullSecrets": [{"name": "pull"}]}


def refusal(namespace: Namespace, pod: str) -> str:
    """Return why a pod's image could not be pulled."""

    def message() -> str:
        statuses = namespace.get(f"pod/{pod}")["status"].get("containerStatuses") or [{}]
        waits = statuses[0].get("state", {}).get("waiting", {})
        return waits.get("message", "") if waits.get("reason") == "ErrImagePull" else ""

    found = ""

    def refused() -> str:
        nonlocal found
        found = message()
        return found

    until(refused, f"{pod} to be refused", 90)
    return found


def test_a_pod_gets_an_image_with_the_right_secret_and_not_without(
    registry: Registry, namespace: Namespace, start_pod: StartPod
) -> None:
    start_pod("without", container={"image": push(registry)})
    said = refusal(namespace, "without")
    words = {"basic": "no basic auth credentials", "token": "insufficient_scope"}
    assert words[registry.kind.auth] in said

    with_secret = use(registry, READER, namespace)
    image = {"image": push(registry)}
    start_pod("with", "echo pulled", container=image, restartPolicy="Never", **with_secret)
    namespace.wait_for_pod("with", "Succeeded", 120)
    assert namespace.kubectl("logs", "with") == "pulled\n"


@pytest.mark.parametrize("registry", [registries.BASIC, registries.TOKEN], indirect=True)
def test_a_wrong_password_gets_nothing(
    registry: Registry, namespace: Namespace, start_pod: StartPod
) -> None:
    secret = use(registry, STRANGER, namespace)

    start_pod("stranger", container={"image": push(registry)}, **secret)

    assert "401" in refusal(namespace, "stranger")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        pushing.push_tiny(pushing.client(registry, STRANGER), registry.host, "tests/tiny")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        pushing.client(registry).manifest("tests/tiny", "latest")


@pytest.mark.parametrize("registry", [registries.TOKEN], indirect=True)
def test_a_reader_may_pull_and_not_push(registry: Registry) -> None:
    image = push(registry)
    reader = pushing.client(registry, READER)

    assert reader.manifest("tests/tiny", image.rpartition(":")[2])["layers"]
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        pushing.push_tiny(reader, registry.host, "tests/tiny")
    assert "insufficient_scope" in refused.value.headers["WWW-Authenticate"]


@pytest.mark.parametrize("registry", [registries.BASIC_TLS], indirect=True)
def test_a_node_and_a_client_that_do_not_know_the_authority_refuse(
    registry: Registry, namespace: Namespace, start_pod: StartPod
) -> None:
    image = push(registry)
    registry.distrust()

    secret = use(registry, OWNER, namespace)
    start_pod("refused", container={"image": image}, **secret)

    assert "x509: certificate signed by unknown authority" in refusal(namespace, "refused")
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        pushing.Client(registry.url, OWNER).manifest("tests/tiny", "latest")
    registry.trust()
    start_pod("trusted", "sleep 1000", container={"image": image}, **secret)
    namespace.wait_for_pod("trusted", "Running")


@pytest.mark.parametrize("registry", [registries.TOKEN_TLS], indirect=True)
def test_what_was_pushed_is_there_after_a_stop_and_a_start(registry: Registry) -> None:
    image = push(registry)
    registry.stop()
    with pytest.raises(urllib.error.URLError, match="refused"):
        pushing.client(registry, OWNER).manifest("tests/tiny", "latest")

    registry.start()

    tag = image.rpartition(":")[2]
    assert pushing.client(registry, OWNER).manifest("tests/tiny", tag)["layers"]


@pytest.mark.parametrize("registry", [registries.TOKEN], indirect=True)
def test_an_image_of_the_main_registry_can_be_copied(
    registry: Registry, local_cluster: Cluster
) -> None:
    name, _, tag = local_cluster.image("coredns").rpartition("/")[2].partition(":")
    main = pushing.Client(f"http://{local_cluster.at.registry}")
    there = pushing.client(registry, OWNER)

    pushing.copy(main, there, name, tag)

    assert there.manifest(name, tag)["layers"] == main.manifest(name, tag)["layers"]
