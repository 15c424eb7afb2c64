"""One gateway for a module's tests, and what it wrote with each failure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.e2e import evidence
from tests.e2e.gateway import place
from tests.e2e.gateway.client import Api, RemoteKernel
from tests.e2e.gateway.place import Gateway

Start = Callable[..., RemoteKernel]

_GATEWAY = pytest.StashKey[Gateway]()


@pytest.fixture(scope="module")
def gateway(
    local_cluster: Cluster, with_enterprise_gateway: None, request: pytest.FixtureRequest
) -> Iterator[Gateway]:
    """Enterprise Gateway as deploy/ has it."""
    with place.serving(local_cluster, place.ENTERPRISE_GATEWAY) as made:
        request.config.stash[_GATEWAY] = made
        yield made


@pytest.fixture(scope="module")
def provisioners(
    local_cluster: Cluster, with_jupyter: None, request: pytest.FixtureRequest
) -> Iterator[Gateway]:
    """JupyterLab with gateway_provisioners as deploy/ has it."""
    with place.serving(local_cluster, place.PROVISIONERS) as made:
        request.config.stash[_GATEWAY] = made
        yield made


@pytest.fixture(scope="module")
def api(gateway: Gateway) -> Api:
    """Its address; it is up."""
    return gateway.up()


@pytest.fixture
def start(gateway: Gateway, api: Api) -> Iterator[Start]:
    """Start kernels in the team's namespace; they and their jobs go after the test."""
    kernels: list[RemoteKernel] = []

    def one(**env: str) -> RemoteKernel:
        made = gateway.start(api, **env)  # several threads may do that
        kernels.append(made)
        return made

    yield one
    for kernel in kernels:
        with contextlib.suppress(OSError):
            kernel.delete()
    gateway.team.namespace.kubectl("delete", "tfjobs", "--all", "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add to a failure what the gateway and the kernels' pods wrote."""
    report = yield
    if report.failed and (made := item.config.stash.get(_GATEWAY, None)):
        evidence.add(report, lambda: [("the gateway", made.log())])
        evidence.add(
            report,
            lambda: [
                pair
                for pair in made.team.namespace.evidence().items()
                if not pair[0].startswith("parts")
            ],
        )
    return report
