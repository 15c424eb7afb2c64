"""Images appended in real registries, with passwords and tokens, and run by the cluster."""

from __future__ import annotations

import json
import platform
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ciao_kernel.errors import RegistryFault, describe
from ciao_kernel.oci.append import Appended, Appender, Change
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.image import Platform
from ciao_kernel.oci.layer import File, pack
from ciao_kernel.oci.reference import Reference, parse
from ciao_kernel.oci.registries import Registries
from tests.cluster.cluster import Cluster
from tests.cluster.faults import registries
from tests.cluster.faults.registries import OWNER, READER, Account, Kind, Registry
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.workers import own

STRANGER = Account("owner", "not the password")
HERE = Platform({"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()])


FIRST = (registries.BASIC, registries.TOKEN_TLS)
"""Every way to sign in, and both protocols; the other two are the same ways by the other one."""


def named(*kinds: Kind) -> list[Any]:
    second = pytest.mark.second("builders")
    return [
        pytest.param(kind, id=kind.name, marks=() if kind in FIRST else second) for kind in kinds
    ]


@pytest.fixture(scope="module", params=named(*registries.KINDS))
def registry(local_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Registry]:
    kind: Kind = request.param
    with Registry(local_cluster, own(kind)) as made:
        yield made


class User:
    """A kernel that appends cells to images.

    Args:
        cluster: Its main registry asks nobody anything.
        registry: The one that does.
        account: Who it is there; None is nobody.
    """

    def __init__(self, cluster: Cluster, registry: Registry, account: Account | None) -> None:
        self._registry = registry
        plain = [cluster.at.registry] + ([] if registry.kind.tls else [registry.host])
        authority = registry.authority if registry.kind.tls else None
        known = Credentials(account.name, account.password) if account else None

        def find(image: Reference) -> Credentials | None:
            return known if image.registry == registry.host else None

        self.registries = Registries(plain, authority, find)

    def append(self, base: str, repository: str, text: str) -> Appended:
        appender = Appender(self.registries.of)
        layer = pack([File("ciao/said.txt", text.encode())], writable=["ciao"])
        target = parse(f"{self._registry.host}/{repository}")
        change = Change(workdir="/ciao")
        return appender.append(parse(base), target, [layer], change, HERE)


@pytest.fixture
def user(local_cluster: Cluster, registry: Registry) -> Iterator[Callable[..., User]]:
    made: list[User] = []

    def make(account: Account | None) -> User:
        made.append(User(local_cluster, registry, account))
        return made[-1]

    yield make
    for one in made:
        one.registries.close()


def tags(user: User, repository: str) -> set[str]:
    """What the registry lists; nothing half-written counts."""
    image = parse(f"{user._registry.host}/{repository}")
    opened = user.registries.of(image)
    answer = opened.call(
        "GET", f"{repository}/tags/list", (f"repository:{repository}:pull",), accept=(200, 404)
    )
    return set(json.loads(answer.body).get("tags") or ())


def run(namespace: Namespace, name: str, image: str) -> None:
    """Start a pod that prints the appended file."""
    container = {"name": "main", "image": image, "command": ["/bin/busybox", "cat", "said.txt"]}
    namespace.create_objects(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "containers": [container],
                "imagePullSecrets": [{"name": "pull"}],
            },
        }
    )


@pytest.mark.second("builders", only="basic")
def test_appended_images_run(
    registry: Registry, local_cluster: Cluster, user: Callable[..., User], namespace: Namespace
) -> None:
    mark = secrets.token_hex(4)
    owner, base = user(OWNER), local_cluster.image("tools")

    copied = owner.append(base, "tests/environment", f"copied ü {mark}\n")
    mounted = owner.append(str(copied.image), "tests/cells", f"mounted ü {mark}\n")

    assert not copied.unchanged
    assert copied.tag in tags(owner, "tests/environment")
    assert owner.append(str(copied.image), "tests/cells", f"mounted ü {mark}\n").unchanged
    namespace.create_objects(registries.pull_secret(registry.host, READER))
    for name, made in (("copied", copied), ("mounted", mounted)):
        run(namespace, name, str(made.image))
    for name in ("copied", "mounted"):
        until(
            lambda: f"{name} ü {mark}" in namespace.log_text(),  # noqa: B023
            f"the line of {name}",
            120,
        )


@pytest.mark.second("builders", only="basic")
def test_who_has_no_right_is_told_and_leaves_nothing(
    registry: Registry, local_cluster: Cluster, user: Callable[..., User]
) -> None:
    base, repository = local_cluster.image("tools"), f"tests/{secrets.token_hex(4)}"
    says = {
        None: f"the registry {registry.host} requires authentication",
        STRANGER: f"the registry {registry.host} does not accept the credentials of owner",
    }
    if registry.kind.auth == "token":  # with passwords alone, all may do all
        says[READER] = f"reader has no right to push to {registry.host}/{repository}"

    for account, words in says.items():
        with pytest.raises(RegistryFault) as refused:
            user(account).append(base, repository, "never")
        assert words in refused.value.message
        assert account is None or account.password not in "\n".join(describe(refused.value))

    assert tags(user(OWNER), repository) == set()


@pytest.mark.second("builders")
def test_who_may_only_pull_reads_and_finds(
    registry: Registry, local_cluster: Cluster, user: Callable[..., User]
) -> None:
    made = user(OWNER).append(local_cluster.image("tools"), "tests/environment", "hello")
    reader = Appender(user(READER).registries.of)

    assert reader.find(made.image.at(""), made.tag) == made.image
    image = reader.inspect(made.image, HERE)
    assert image.digest == made.image.digest


@pytest.mark.second("builders")
@pytest.mark.parametrize(
    "registry", named(registries.BASIC_TLS, registries.TOKEN_TLS), indirect=True
)
def test_an_authority_that_is_not_named(registry: Registry, user: Callable[..., User]) -> None:
    stranger = user(OWNER)
    stranger.registries = Registries(find=lambda image: None)

    with pytest.raises(RegistryFault, match="is not trusted here") as refused:
        stranger.append(f"{registry.host}/tests/environment:x", "tests/cells", "never")

    assert "registryAuthority" in refused.value.hint
