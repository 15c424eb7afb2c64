"""A registry that goes away in the middle of an upload: all is there afterwards, or nothing is."""

from __future__ import annotations

import json
import platform
import secrets
import threading
from collections.abc import Callable, Iterator

import pytest

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.append import Appended, Appender, Change
from ciao_kernel.oci.image import Platform
from ciao_kernel.oci.layer import File, pack
from ciao_kernel.oci.reference import Reference, parse
from ciao_kernel.oci.registries import Registries
from tests.cluster.cluster import Cluster
from tests.cluster.faults.proxy import Proxy

HERE = Platform({"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()])
REGISTRY = 5000


@pytest.fixture
def proxy(local_cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(local_cluster.at, REGISTRY) as made:
        yield made


@pytest.fixture
def opened(local_cluster: Cluster, proxy: Proxy) -> Iterator[Registries]:
    hosts = [local_cluster.at.registry, f"127.0.0.1:{proxy.port}"]
    made = Registries(hosts, find=lambda image: None)
    yield made
    made.close()


def append(
    opened: Registries, cluster: Cluster, target: Reference, at_half: Callable[[], None]
) -> Appended:
    """Append to a base that comes through the proxy; something happens when half of it came."""
    pending = [at_half]

    def tell(digest: str, done: int, size: int) -> None:
        if pending and 2 * done >= size:
            pending.pop()()

    layer = pack([File("ciao/said.txt", secrets.token_bytes(16))])
    return Appender(opened.of).append(
        parse(cluster.image("coredns")), target, [layer], Change(), HERE, tell=tell
    )


def listed(opened: Registries, cluster: Cluster, repository: str) -> list[str]:
    """The tags of a repository, asked for without the proxy."""
    registry = opened.of(parse(f"{cluster.at.registry}/{repository}"))
    answer = registry.call("GET", f"{repository}/tags/list", (), accept=(200, 404))
    return list(json.loads(answer.body).get("tags") or ())


@pytest.mark.second("builders")
def test_an_upload_that_is_reset_is_done_again(
    opened: Registries, local_cluster: Cluster, proxy: Proxy
) -> None:
    repository = f"tests/{secrets.token_hex(4)}"
    seen: list[list[str]] = []

    def harm() -> None:
        proxy.reset()
        seen.append(listed(opened, local_cluster, repository))
        threading.Timer(0.3, proxy.pass_on).start()

    target = parse(f"127.0.0.1:{proxy.port}/{repository}")
    made = append(opened, local_cluster, target, harm)

    assert seen == [[]]
    assert listed(opened, local_cluster, repository) == [made.tag]
    there = parse(f"{local_cluster.at.registry}/{repository}").at(made.image.digest)
    image = Appender(opened.of).inspect(there, HERE)
    registry = opened.of(there)
    for layer in image.manifest["layers"]:
        answer = registry.call("HEAD", f"{repository}/blobs/{layer['digest']}", ())
        assert int(answer.headers["Content-Length"]) == layer["size"]


@pytest.mark.second("builders")
def test_a_registry_that_stays_away_is_one_clear_error(
    opened: Registries, local_cluster: Cluster, proxy: Proxy
) -> None:
    repository = f"tests/{secrets.token_hex(4)}"
    host = f"127.0.0.1:{proxy.port}"

    with pytest.raises(RegistryFault) as raised:
        append(opened, local_cluster, parse(f"{host}/{repository}"), proxy.refuse)

    assert raised.value.message == f"the registry {host} does not answer: nothing listens there."
    assert listed(opened, local_cluster, repository) == []
